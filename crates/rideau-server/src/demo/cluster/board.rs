//! What is shown of the cluster: which node owns what, how far commands went, and whether
//! what clients were told is true.

use std::collections::HashMap;
use std::time::Duration;

use rideau_resp::Value;
use serde_json::json;
use tokio::time::timeout;

use super::etcd::DemoEtcd;
use super::ledger::{Checked, Faults, Ledger};
use super::nodes::{DemoNode, DemoNodes, RANGE};
use super::traffic::{Score, ShopTraffic};
use crate::demo::Seconds;
use crate::demo::screen::{Paint, Screen};
use crate::exit::Failure;
use crate::wire::{Server, Wire};

/// A node that says nothing for so long is shown as it was.
const SAY_MAX: Duration = Duration::from_millis(800);

/// The screen of the demo.
pub(super) struct Board {
    is_json: bool,
    /// The numbers of each node when it last said something.
    numbers: HashMap<String, NodeNumbers>,
    /// Counters since the traffic began, with those of nodes that died.
    totals: [u64; COUNTED.len()],
}

/// The counters of all nodes.
const COUNTED: [&str; 3] = ["hops_out", "takeovers", "moves_in"];

/// The numbers in `INFO cluster` of a node.
#[derive(Clone, Default)]
struct NodeNumbers(HashMap<String, String>);

impl NodeNumbers {
    fn count(&self, name: &str) -> u64 {
        let text = self.0.get(&format!("cluster_{name}"));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl Board {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            numbers: HashMap::new(),
            totals: [0; COUNTED.len()],
        }
    }

    /// Say what there is to see.
    pub(super) fn introduce(
        &self,
        screen: &mut Screen,
        nodes: &DemoNodes,
        etcd: &DemoEtcd,
        seconds: Seconds,
    ) -> Result<(), Failure> {
        if self.is_json {
            let nodes = nodes.all.iter().map(|node| {
                let DemoNode {
                    name, port, page, ..
                } = node;
                json!({ "name": name, "redis": port, "admin": page })
            });
            let nodes: Vec<_> = nodes.collect();
            let line = json!({ "etcd": etcd.url, "nodes": nodes });
            return Ok(screen.line(&line.to_string())?);
        }
        let until = match seconds {
            Seconds::Forever => "until q or Ctrl-C".into(),
            Seconds::For(seconds) => format!("for {seconds} s"),
        };
        screen.line(&format!(
            "Three nodes share the values {RANGE} over etcd at {}, {until}.",
            etcd.url
        ))?;
        for node in &nodes.all {
            let DemoNode {
                name, port, page, ..
            } = node;
            screen.line(&format!(
                "  {name}  redis-cli -p {port} SHOW NODES   http://127.0.0.1:{page}/"
            ))?;
        }
        screen
            .line("Clients reserve values on any node and give them back. Now and then a node")?;
        screen.line("is killed: others take its partitions over when its lease of 2 s is over.")?;
        screen.line("On a terminal, 1 2 3 kill a node, e restarts etcd, q ends and checks.")?;
        Ok(screen.line("The nodes join; a node owns nothing in its first 3 s.")?)
    }

    /// Say what the lines mean.
    pub(super) fn heads(&self, screen: &mut Screen) -> Result<(), Failure> {
        if self.is_json {
            return Ok(());
        }
        screen.line("")?;
        Ok(screen.line("Each node with the partitions it owns:")?)
    }

    /// Something happened, which stays to be seen.
    pub(super) fn happened(&self, screen: &mut Screen, what: &str) -> Result<(), Failure> {
        let line = match self.is_json {
            true => json!({ "happened": what }).to_string(),
            false => screen.paint(Paint::Bold, &format!("        {what}")),
        };
        Ok(screen.line(&line)?)
    }

    /// Whether every partition has an owner, by all nodes.
    pub(super) async fn is_served(&self, nodes: &DemoNodes) -> bool {
        let mut owned = 0;
        for node in &nodes.all {
            let Some(numbers) = ask(node.port).await else {
                return false;
            };
            let is_linked = numbers.count("links") + 1 == nodes.all.len() as u64;
            if numbers.count("partitions_unowned") > 0 || !is_linked {
                return false;
            }
            owned += u64::from(numbers.count("partitions_owned") > 0);
        }
        owned == nodes.all.len() as u64
    }

    /// Show the last second.
    pub(super) async fn second(
        &mut self,
        screen: &mut Screen,
        second: u32,
        nodes: &DemoNodes,
        traffic: &ShopTraffic,
    ) -> Result<(), Failure> {
        for node in nodes.all.iter().filter(|node| node.is_running()) {
            if let Some(numbers) = ask(node.port).await {
                self.count(&node.name, numbers);
            }
        }
        let score = traffic.score();
        let (faults, held) = (traffic.ledger().faults(), traffic.ledger().len());
        if self.is_json {
            let line = self.json(second, nodes, &score, faults, held);
            return Ok(screen.line(&line.to_string())?);
        }
        let owners = nodes.all.iter().map(|node| self.owner(node));
        let owners: Vec<_> = owners.collect();
        let [hops, taken, moved] = self.totals;
        let wait = crate::span::shown(score.took.quantile(0.99).as_micros() as i64);
        let lines = [
            format!(
                "{second:>5} s  {}  none {:<3}",
                owners.join("  "),
                self.unowned(nodes)
            ),
            format!(
                "         {:>5} reserved, {:>5} released, {:>4} told to ask again; p99 {wait}",
                score.reserved, score.released, score.down
            ),
            format!(
                "         {hops} hops, {taken} taken over, {moved} moved; {held} held, {} twice, \
                 {} lost",
                faults.twice, faults.lost
            ),
        ];
        Ok(screen.redraw(&lines)?)
    }

    /// A node says its numbers. Those of a new process begin at zero.
    fn count(&mut self, node: &str, numbers: NodeNumbers) {
        let former = self.numbers.get(node);
        for (total, name) in self.totals.iter_mut().zip(COUNTED) {
            let now = numbers.count(name);
            let before = former.map_or(now, |former| former.count(name));
            *total += now.checked_sub(before).unwrap_or(now);
        }
        self.numbers.insert(node.to_owned(), numbers);
    }

    fn owner(&self, node: &DemoNode) -> String {
        let name = &node.name;
        match (node.is_running(), self.numbers.get(name)) {
            (false, _) => format!("{name} dead"),
            (true, None) => format!("{name} …   "),
            (true, Some(numbers)) => format!("{name} {:<4}", numbers.count("partitions_owned")),
        }
    }

    /// Partitions without owner, as the nodes that live see it.
    fn unowned(&self, nodes: &DemoNodes) -> u64 {
        let live = nodes.all.iter().filter(|node| node.is_running());
        let numbers = live.filter_map(|node| self.numbers.get(&node.name));
        // A node that joins knows nothing yet.
        let numbers = numbers.filter(|numbers| numbers.count("known_nodes") > 0);
        let unowned = numbers.map(|numbers| numbers.count("partitions_unowned"));
        unowned.max().unwrap_or(0)
    }

    fn json(
        &self,
        second: u32,
        nodes: &DemoNodes,
        score: &Score,
        faults: Faults,
        held: usize,
    ) -> serde_json::Value {
        let nodes = nodes.all.iter().map(|node| {
            let numbers = self.numbers.get(&node.name).cloned().unwrap_or_default();
            json!({
                "name": node.name,
                "is_running": node.is_running(),
                "partitions": numbers.count("partitions_owned"),
                "hops_out": numbers.count("hops_out"),
                "hops_in": numbers.count("hops_in"),
                "takeovers": numbers.count("takeovers"),
                "moves_in": numbers.count("moves_in"),
            })
        });
        json!({
            "second": second,
            "nodes": nodes.collect::<Vec<_>>(),
            "reserved": score.reserved,
            "released": score.released,
            "down": score.down,
            "cut": score.cut,
            "reserve_p99_us": score.took.quantile(0.99).as_micros() as u64,
            "held": held,
            "twice": faults.twice,
            "lost": faults.lost,
        })
    }

    /// Say what came out.
    pub(super) fn conclude(
        &self,
        screen: &mut Screen,
        ledger: &Ledger,
        checked: Checked,
    ) -> Result<(), Failure> {
        let Faults { twice, lost } = ledger.faults();
        let Checked { held, unanswered } = checked;
        if self.is_json {
            let line = json!({
                "checked": held, "unanswered": unanswered, "twice": twice, "lost": lost,
            });
            return Ok(screen.line(&line.to_string())?);
        }
        let paint = match (twice, lost) {
            (0, 0) => Paint::Good,
            _ => Paint::Bad,
        };
        let line = format!(
            "{twice} values given twice, {lost} lost: {held} that clients hold were asked for, \
             and are held."
        );
        screen.line("")?;
        screen.line(&screen.paint(paint, &line))?;
        if unanswered > 0 {
            screen.line(&format!("No node answered for {unanswered} values."))?;
        }
        Ok(())
    }
}

/// The numbers of a node, if it answers soon.
async fn ask(port: u16) -> Option<NodeNumbers> {
    let ask = async {
        let mut wire = Wire::connect(&Server::local(port), "demo-board")
            .await
            .ok()?;
        let answer = wire.ask(&["INFO", "cluster"]).await.ok()?;
        let (Value::Verbatim { text, .. } | Value::Bulk(text)) = answer else {
            return None;
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let pairs = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Some(NodeNumbers(pairs.collect()))
    };
    timeout(SAY_MAX, ask).await.ok().flatten()
}
