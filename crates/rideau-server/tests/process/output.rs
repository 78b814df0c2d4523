//! What children write: more than is wanted, and nothing that is text.

use std::fs;
use std::sync::{Arc, Mutex};

use rideau_process::{Process, Ready};

use crate::harness::{ALONE, Harness, LONG, alone, program, shell, texts, until};

/// The memory of this program, in kilobytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let row = status.lines().find_map(|row| row.strip_prefix("VmRSS:"));
    let number = row.unwrap().split_whitespace().next().unwrap();
    number.parse().unwrap()
}

#[tokio::test]
async fn a_hundred_megabytes_without_an_end_take_no_memory() {
    if std::env::var_os(ALONE).is_none() {
        let name = "output::a_hundred_megabytes_without_an_end_take_no_memory";
        assert!(alone(name, "flood").wait().unwrap().success());
        return;
    }
    let harness = Harness::new();
    // Zeros, then what is no text, then a line.
    let flood = |bytes: u32| {
        let script = format!(
            "head -c {bytes} /dev/zero; head -c {bytes} /dev/zero | tr '\\0' '\\377';
             echo; echo done; exec sleep 1000"
        );
        shell(&script, Ready::Line("done".to_owned()))
    };
    let _first = harness.start(&flood(1_000_000)).await.unwrap();
    let before = memory();
    let process = harness.start(&flood(50_000_000)).await.unwrap();
    let after = memory();
    assert!(after < before + 2048, "from {before} to {after} kB");
    let lines = process.last_lines();
    assert!(lines[0].cut);
    assert!(lines[0].text.starts_with("\\x00\\x00"));
    process.stop().await.unwrap();
}

#[tokio::test]
async fn lines_that_come_too_fast_are_counted_and_no_process_waits() {
    let harness = Harness::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&heard);
    let flood = shell(
        "seq 100000; echo done; exec sleep 1000",
        Ready::Line("done".to_owned()),
    );
    let process = Process::start(&flood, &harness.folder, move |line| {
        lines.lock().unwrap().push(line.text.clone());
    });
    let process = tokio::time::timeout(LONG, process).await.unwrap().unwrap();
    process.stop().await.unwrap();
    let heard = heard.lock().unwrap();
    assert_eq!(heard[..3], ["1", "2", "3"]);
    let dropped = heard.iter().filter_map(|line| {
        let count = line.strip_suffix(" lines dropped");
        count.or_else(|| line.strip_suffix(" line dropped"))
    });
    let dropped: Vec<usize> = dropped.map(|count| count.parse().unwrap()).collect();
    let told = heard.len() - dropped.len();
    assert_eq!(told + dropped.iter().sum::<usize>(), 100_001);
    assert!(!dropped.is_empty());
}

#[tokio::test]
async fn a_child_that_closes_its_outputs_goes_on_and_kept_ones_hold_no_end_up() {
    let harness = Harness::new();
    let mut silent = shell(
        "echo ready; exec >&- 2>&-; echo >closed; exec sleep 1000",
        Ready::Line("ready".to_owned()),
    );
    silent.directory = Some(harness.path().to_owned());
    let process = harness.start(&silent).await.unwrap();
    until("its outputs closed", || {
        harness.path().join("closed").exists()
    })
    .await;
    assert!(process.is_alive());
    process.stop().await.unwrap();
    assert_eq!(texts(&process), ["ready"]);

    // Another process has its output open: this very program.
    let mut holder = program(&["sh", "-c", "echo $$; exec sleep 1000"], Ready::Started);
    holder.directory = Some(harness.path().to_owned());
    let process = harness.start(&holder).await.unwrap();
    until("its line", || texts(&process).len() == 1).await;
    let _kept = fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{}/fd/1", process.pid()))
        .unwrap();
    let stopped = tokio::time::timeout(LONG, process.stop()).await.unwrap();
    assert!(stopped.is_some());
}
