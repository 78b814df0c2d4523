//! What a pool would cost that knew the future.
//!
//! An app that is kept from one of its requests to the next saves a start,
//! and needs a place at every request between the two. The place of the app
//! that is being asked for is always taken, so the others share one less.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Starts when the one goes whose next request is the farthest away (Belady).
pub(crate) fn fewest_starts(apps: &[u32], max: usize) -> usize {
    let next = next_requests(apps);
    let mut starts = 0;
    // The next request of each app that has a process.
    let mut here: BTreeMap<usize, u32> = BTreeMap::new();
    for (at, app) in apps.iter().enumerate() {
        if here.remove(&at).is_none() {
            starts += 1;
            if here.len() == max {
                here.pop_last();
            }
        }
        // What is never asked for again is farther away than all others.
        here.insert(next[at].unwrap_or(apps.len() + at), *app);
    }
    starts
}

/// The least that starts can cost together, if the start of each app has a
/// cost of its own.
///
/// The most that can be saved is a flow of greatest value: as many units as
/// there are places to share go from request to request, each either for
/// nothing, or past all requests between two of the same app for what its
/// start costs.
pub(crate) fn least_cost(apps: &[u32], costs: &[f64], max: usize) -> f64 {
    let mut total = 0.0;
    let mut line = Line::new(apps.len() + 1);
    let next = next_requests(apps);
    for (at, app) in apps.iter().enumerate() {
        let cost = costs[*app as usize];
        total += cost;
        match next[at] {
            // No request comes between, so that keeping it needs no place.
            Some(next) if next == at + 1 => total -= cost,
            Some(next) => line.add_arc(at + 1, next, cost),
            None => (),
        }
    }
    total - line.most_saved(max - 1)
}

fn next_requests(apps: &[u32]) -> Vec<Option<usize>> {
    let mut soonest = HashMap::new();
    let mut next: Vec<_> = apps
        .iter()
        .enumerate()
        .rev()
        .map(|(at, app)| soonest.insert(*app, at))
        .collect();
    next.reverse();
    next
}

/// Nodes in a row, each joined to the next for nothing and without limit, and
/// arcs past some of them.
struct Line {
    /// From each node: the arcs that begin there, and those that end there.
    nodes: Vec<Vec<usize>>,
    arcs: Vec<Arc>,
    /// Units between a node and the next.
    flows: Vec<usize>,
}

struct Arc {
    from: usize,
    to: usize,
    saves: f64,
    taken: bool,
}

/// By which way a node is reached.
#[derive(Clone, Copy)]
enum Step {
    Start,
    Onwards,
    Back,
    Arc(usize),
}

impl Line {
    fn new(nodes: usize) -> Self {
        Self {
            nodes: vec![Vec::new(); nodes],
            arcs: Vec::new(),
            flows: vec![0; nodes],
        }
    }

    fn add_arc(&mut self, from: usize, to: usize, saves: f64) {
        let arc = self.arcs.len();
        self.nodes[from].push(arc);
        self.nodes[to].push(arc);
        self.arcs.push(Arc {
            from,
            to,
            saves,
            taken: false,
        });
    }

    /// What this many units save together: one path after the other, each the
    /// cheapest that is left.
    fn most_saved(&mut self, units: usize) -> f64 {
        let mut potentials = self.first_potentials();
        let mut saved = 0.0;
        for _ in 0..units {
            let (distances, steps) = self.cheapest(&potentials);
            for (potential, distance) in potentials.iter_mut().zip(&distances) {
                *potential += distance;
            }
            saved -= potentials[self.nodes.len() - 1] - potentials[0];
            self.send(&steps);
        }
        saved
    }

    /// Distances from the first node while nothing flows: all go onwards.
    fn first_potentials(&self) -> Vec<f64> {
        let mut distances: Vec<f64> = vec![0.0; self.nodes.len()];
        for node in 1..self.nodes.len() {
            distances[node] = distances[node - 1];
            for arc in self.arcs_to(node) {
                distances[node] = distances[node].min(distances[arc.from] - arc.saves);
            }
        }
        distances
    }

    fn arcs_to(&self, node: usize) -> impl Iterator<Item = &Arc> {
        let arcs = self.nodes[node].iter().map(|arc| &self.arcs[*arc]);
        arcs.filter(move |arc| arc.to == node)
    }

    /// Distances over what the potentials say, and how each node is reached
    /// (Dijkstra).
    fn cheapest(&self, potentials: &[f64]) -> (Vec<f64>, Vec<Step>) {
        let mut distances = vec![f64::INFINITY; self.nodes.len()];
        let mut steps = vec![Step::Start; self.nodes.len()];
        let mut near = BinaryHeap::from([Reverse((Key(0.0), 0))]);
        distances[0] = 0.0;
        while let Some(Reverse((Key(distance), node))) = near.pop() {
            if distance > distances[node] {
                continue;
            }
            for (step, to, cost) in self.ways_from(node) {
                // Rounding must not make a way shorter than none.
                let reduced = (cost + potentials[node] - potentials[to]).max(0.0);
                if distance + reduced < distances[to] {
                    distances[to] = distance + reduced;
                    steps[to] = step;
                    near.push(Reverse((Key(distances[to]), to)));
                }
            }
        }
        (distances, steps)
    }

    fn ways_from(&self, node: usize) -> impl Iterator<Item = (Step, usize, f64)> {
        let onwards = (node + 1 < self.nodes.len()).then_some((Step::Onwards, node + 1, 0.0));
        let back = (node > 0 && self.flows[node - 1] > 0).then(|| (Step::Back, node - 1, 0.0));
        let arcs = self.nodes[node].iter().filter_map(move |number| {
            let arc = &self.arcs[*number];
            let way = match (arc.from == node, arc.taken) {
                (true, false) => (Step::Arc(*number), arc.to, -arc.saves),
                (false, true) => (Step::Arc(*number), arc.from, arc.saves),
                (true, true) | (false, false) => return None,
            };
            Some(way)
        });
        onwards.into_iter().chain(back).chain(arcs)
    }

    fn send(&mut self, steps: &[Step]) {
        let mut node = self.nodes.len() - 1;
        loop {
            match steps[node] {
                Step::Start => break,
                Step::Onwards => {
                    node -= 1;
                    self.flows[node] += 1;
                }
                Step::Back => {
                    self.flows[node] -= 1;
                    node += 1;
                }
                Step::Arc(number) => {
                    let arc = &mut self.arcs[number];
                    arc.taken = !arc.taken;
                    node = if arc.taken { arc.from } else { arc.to };
                }
            }
        }
    }
}

/// A distance in order.
#[derive(PartialEq)]
struct Key(f64);

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use rideau_core::Rng;

    use super::*;

    #[test]
    fn with_equal_costs_both_optima_agree() {
        for seed in 0..30 {
            let apps = drawn(400, 12, seed);
            for max in [1, 2, 3, 5, 9, 20] {
                let starts = fewest_starts(&apps, max) as f64;
                let cost = least_cost(&apps, &[1.0; 12], max);
                assert!((cost - starts).abs() < 1e-6, "{cost} {starts} of {max}");
            }
        }
    }

    #[test]
    fn no_choice_of_victims_costs_less() {
        for seed in 0..200 {
            let apps = drawn(11, 5, seed);
            let costs = [1.0, 7.0, 2.5, 0.3, 4.0];
            for max in 1..4 {
                let best = every_choice(&apps, &costs, max, &mut Vec::new());
                let cost = least_cost(&apps, &costs, max);
                assert!((cost - best).abs() < 1e-9, "{apps:?} {max}: {cost} {best}");
            }
        }
    }

    fn drawn(count: usize, apps: u64, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| rng.below(apps) as u32).collect()
    }

    fn every_choice(apps: &[u32], costs: &[f64], max: usize, here: &mut Vec<u32>) -> f64 {
        let Some((app, rest)) = apps.split_first() else {
            return 0.0;
        };
        if here.contains(app) {
            return every_choice(rest, costs, max, here);
        }
        let cost = costs[*app as usize];
        if here.len() < max {
            here.push(*app);
            let best = cost + every_choice(rest, costs, max, here);
            here.pop();
            return best;
        }
        let victims = (0..here.len()).map(|victim| {
            let mut here = here.clone();
            here[victim] = *app;
            cost + every_choice(rest, costs, max, &mut here)
        });
        victims.fold(f64::INFINITY, f64::min)
    }
}
