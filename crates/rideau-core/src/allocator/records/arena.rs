//! Byte strings of any length, close together, each found again by a number.
//!
//! Strings of about one length share pages, so that none pays for a header and
//! the room of one that went fits the next. Long ones stand alone. A page that is
//! not used any more goes back to the system.

/// Pages hold about this much; small enough that a length used once is cheap.
const PAGE_BYTES: usize = 16 * 1024;
/// The shortest cell. It sets how many fit into a page.
const CELL_MIN: usize = 16;
/// From here on a string gets its own page, exactly as long as it is.
const SHARED_MAX: usize = 2048;
/// Up to here lengths differ by four bytes, above by an eighth.
const FINE_MAX: usize = 256;
const CLASSES: usize = FINE_MAX / 4 + 1 + 8 * 3;
/// Bits of a place that count cells within a page.
const CELL_BITS: u32 = (PAGE_BYTES / CELL_MIN).ilog2();
const PAGES_MAX: usize = 1 << (32 - CELL_BITS);
/// No page, or no cell.
const NO_PAGE: u32 = u32::MAX;
const NO_CELL: u16 = u16::MAX;

/// Where a string lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place(pub(super) u32);

impl Place {
    fn new(page: u32, cell: u16) -> Self {
        Self(page << CELL_BITS | u32::from(cell))
    }

    const fn page(self) -> usize {
        (self.0 >> CELL_BITS) as usize
    }

    const fn cell(self) -> usize {
        (self.0 & ((1 << CELL_BITS) - 1)) as usize
    }
}

#[derive(Debug)]
pub(super) struct Arena {
    pages: Vec<Page>,
    /// Numbers of pages that were given back.
    vacant: Vec<u32>,
    /// For each class, the first of its pages that have room.
    open: [u32; CLASSES],
    /// Bytes of the pages, used or not.
    held: usize,
}

#[derive(Debug)]
struct Page {
    bytes: Box<[u8]>,
    /// The length of each cell.
    size: u32,
    live: u16,
    /// Cells from here on were never used.
    fresh: u16,
    /// The first cell given back; it begins with the number of the next.
    free: u16,
    /// Neighbours among the pages of this class that have room.
    prev: u32,
    next: u32,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            pages: Vec::new(),
            vacant: Vec::new(),
            open: [NO_PAGE; CLASSES],
            held: 0,
        }
    }

    /// Keep `content`.
    pub(super) fn insert(&mut self, content: &[u8]) -> Place {
        let page = match class_of(content.len()) {
            None => self.add_page(content.len(), 1),
            Some((class, size)) => match self.open[class] {
                NO_PAGE => {
                    let page = self.add_page(size, PAGE_BYTES / size);
                    self.link(class, page);
                    page
                }
                page => page,
            },
        };
        let place = Place::new(page, self.pages[page as usize].take());
        if let Some((class, _)) = class_of(content.len())
            && self.pages[page as usize].is_full()
        {
            self.unlink(class, page);
        }
        self.cell_mut(place)[..content.len()].copy_from_slice(content);
        place
    }

    /// The string at `place`, and perhaps a few bytes more: strings must tell
    /// themselves where they end.
    pub(super) fn cell(&self, place: Place) -> &[u8] {
        let page = &self.pages[place.page()];
        let size = page.size as usize;
        &page.bytes[place.cell() * size..][..size]
    }

    /// Keep `content` instead, at the same place if it fits as well there.
    pub(super) fn replace(&mut self, place: Place, content: &[u8]) -> Place {
        let size = self.pages[place.page()].size as usize;
        let wanted = class_of(content.len()).map_or(content.len(), |(_, size)| size);
        if wanted == size {
            self.cell_mut(place)[..content.len()].copy_from_slice(content);
            return place;
        }
        self.remove(place);
        self.insert(content)
    }

    pub(super) fn remove(&mut self, place: Place) {
        let number = place.page() as u32;
        let page = &mut self.pages[place.page()];
        let was_full = page.is_full();
        page.give_back(place.cell() as u16);
        let (is_empty, size) = (page.live == 0, page.size as usize);
        let Some((class, _)) = class_of(size) else {
            self.drop_page(number);
            return;
        };
        if was_full {
            self.link(class, number);
        }
        // The last page with room stays, or one string that comes and goes
        // would cost a page each time.
        let page = &self.pages[place.page()];
        if is_empty && (page.prev != NO_PAGE || page.next != NO_PAGE) {
            self.unlink(class, number);
            self.drop_page(number);
        }
    }

    /// Everything this arena has from the system.
    pub(super) fn bytes(&self) -> usize {
        self.held
            + self.pages.capacity() * size_of::<Page>()
            + self.vacant.capacity() * size_of::<u32>()
    }

    fn cell_mut(&mut self, place: Place) -> &mut [u8] {
        let page = &mut self.pages[place.page()];
        let size = page.size as usize;
        &mut page.bytes[place.cell() * size..][..size]
    }

    fn add_page(&mut self, size: usize, cells: usize) -> u32 {
        let page = Page {
            bytes: vec![0; size * cells].into_boxed_slice(),
            size: size as u32,
            live: 0,
            fresh: 0,
            free: NO_CELL,
            prev: NO_PAGE,
            next: NO_PAGE,
        };
        self.held += page.bytes.len();
        if let Some(number) = self.vacant.pop() {
            self.pages[number as usize] = page;
            return number;
        }
        assert!(self.pages.len() < PAGES_MAX, "64 GiB of records are enough");
        if self.pages.len() == self.pages.capacity() {
            self.pages.reserve_exact(self.pages.len() / 8 + 4);
        }
        self.pages.push(page);
        self.pages.len() as u32 - 1
    }

    fn drop_page(&mut self, number: u32) {
        let bytes = std::mem::take(&mut self.pages[number as usize].bytes);
        self.held -= bytes.len();
        self.vacant.push(number);
    }

    fn link(&mut self, class: usize, number: u32) {
        let next = std::mem::replace(&mut self.open[class], number);
        let page = &mut self.pages[number as usize];
        (page.prev, page.next) = (NO_PAGE, next);
        if next != NO_PAGE {
            self.pages[next as usize].prev = number;
        }
    }

    fn unlink(&mut self, class: usize, number: u32) {
        let page = &mut self.pages[number as usize];
        let prev = std::mem::replace(&mut page.prev, NO_PAGE);
        let next = std::mem::replace(&mut page.next, NO_PAGE);
        match prev {
            NO_PAGE => self.open[class] = next,
            prev => self.pages[prev as usize].next = next,
        }
        if next != NO_PAGE {
            self.pages[next as usize].prev = prev;
        }
    }
}

impl Page {
    const fn is_full(&self) -> bool {
        (self.live as usize + 1) * self.size as usize > self.bytes.len()
    }

    fn take(&mut self) -> u16 {
        self.live += 1;
        let cell = self.free;
        if cell == NO_CELL {
            self.fresh += 1;
            return self.fresh - 1;
        }
        let start = cell as usize * self.size as usize;
        self.free = u16::from_le_bytes([self.bytes[start], self.bytes[start + 1]]);
        cell
    }

    fn give_back(&mut self, cell: u16) {
        self.live -= 1;
        let start = cell as usize * self.size as usize;
        self.bytes[start..start + 2].copy_from_slice(&self.free.to_le_bytes());
        self.free = cell;
    }
}

/// The class of strings this long and the length of its cells; none for
/// those that stand alone.
fn class_of(len: usize) -> Option<(usize, usize)> {
    if len <= FINE_MAX {
        let size = len.max(CELL_MIN).next_multiple_of(4);
        return Some((size / 4, size));
    }
    if len > SHARED_MAX {
        return None;
    }
    let power = (len - 1).ilog2();
    let step = 1_usize << (power - 3);
    let size = len.next_multiple_of(step);
    let eighth = (size - (1 << power)) / step - 1;
    let class = FINE_MAX / 4 + 1 + (power - FINE_MAX.ilog2()) as usize * 8 + eighth;
    Some((class, size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn classes_are_dense_and_waste_at_most_an_eighth() {
        let mut last = (CELL_MIN / 4, CELL_MIN);
        for len in 0..=SHARED_MAX {
            let (class, size) = class_of(len).unwrap();
            assert!(size >= len && size <= (len + 3).max(CELL_MIN).max(len * 9 / 8));
            assert_eq!(class_of(size), Some((class, size)));
            assert!((class, size) == last || (class == last.0 + 1 && size > last.1));
            last = (class, size);
        }
        assert_eq!(last, (CLASSES - 1, SHARED_MAX));
        assert_eq!(class_of(SHARED_MAX + 1), None);
    }

    #[test]
    fn strings_stay_as_they_are_while_others_come_and_go() {
        let mut rng = Rng::new(3);
        let mut arena = Arena::new();
        let mut model: Vec<(Place, Vec<u8>)> = Vec::new();
        for step in 0..60_000_u64 {
            // Grow for a while, then shrink, so that pages fill and empty.
            let grow = (step / 10_000) % 2 == 0;
            let draw = rng.below(10);
            if model.is_empty() || (draw < 7) == grow && draw != 9 {
                let content = string(&mut rng);
                model.push((arena.insert(&content), content));
            } else {
                let at = rng.below(model.len() as u64) as usize;
                if draw == 9 {
                    let content = string(&mut rng);
                    model[at] = (arena.replace(model[at].0, &content), content);
                } else {
                    let (place, content) = model.swap_remove(at);
                    assert_eq!(&arena.cell(place)[..content.len()], content);
                    arena.remove(place);
                }
            }
        }
        for (place, content) in model {
            assert_eq!(&arena.cell(place)[..content.len()], content);
            arena.remove(place);
        }
        let pages: usize = arena.pages.iter().map(|page| page.bytes.len()).sum();
        assert_eq!(pages, arena.held);
        assert!(
            pages <= CLASSES * PAGE_BYTES,
            "at most one page a class stays"
        );
    }

    fn string(rng: &mut Rng) -> Vec<u8> {
        let max = [40, 300, 5_000][rng.below(3) as usize];
        let len = if rng.below(500) == 0 {
            70_000
        } else {
            rng.below(max)
        };
        let fill = rng.draw();
        (0..len).map(|n| (n ^ fill) as u8).collect()
    }
}
