//! Slots of names, as Redis Cluster has them, so that its clients find their way.

/// How many slots there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a name. Of a name with braces only what stands between the first pair
/// counts, so that a client can have several names in one slot.
pub const fn slot_of(name: &[u8]) -> u16 {
    crc16(tag(name)) % SLOTS
}

/// The part of a name that counts: what stands between the first `{` and the next `}`,
/// if that is not empty.
const fn tag(name: &[u8]) -> &[u8] {
    let Some(open) = position(name, b'{') else {
        return name;
    };
    let (_, behind) = name.split_at(open + 1);
    match position(behind, b'}') {
        None | Some(0) => name,
        Some(len) => behind.split_at(len).0,
    }
}

const fn position(bytes: &[u8], wanted: u8) -> Option<usize> {
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == wanted {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The checksum CRC-16/XMODEM: polynomial 1021, from zero, not reflected.
const fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0;
    let mut at = 0;
    while at < bytes.len() {
        let place = (crc >> 8) as u8 ^ bytes[at];
        crc = (crc << 8) ^ TABLE[place as usize];
        at += 1;
    }
    crc
}

/// The table of the CRC.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::{SLOTS, crc16, slot_of};

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc16(b""), 0);
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        for (name, slot) in [("foo", 12_182), ("bar", 5_061), ("hello", 866), ("", 0)] {
            assert_eq!(slot_of(name.as_bytes()), slot, "{name}");
        }
    }

    #[test]
    fn of_a_name_with_braces_the_part_between_them_counts() {
        let slot = |name: &str| slot_of(name.as_bytes());
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
        // Nothing between them, or no pair: the whole name counts.
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{"] {
            assert_eq!(slot(whole), crc16(whole.as_bytes()) % SLOTS);
        }
    }
}
