//! What becomes of answers when partitions are lost before all is written.

use std::thread;

use rideau::Failed;
use rideau::allocator::{Ask, Refused, Vouched};
use rideau::store::PartitionHost;

use crate::kept_logs::{
    KeptLogs, anywhere, claim, eventually, holder, options, outcome, partitions, reserve, reserved,
};

fn is_unknown<T>(answer: &Result<T, Failed>, of: u32) -> bool {
    matches!(answer, Err(Failed::Unknown { partition }) if *partition == of)
}

#[test]
fn answers_about_a_lost_partition_fail_and_the_others_are_safe() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    reserved(&node, "sync");
    kept_logs.hold(node.life, true);
    let answers: Vec<_> = (4..8).map(|value| claim(&node, value)).collect();
    kept_logs.lose(1);
    kept_logs.hold(node.life, false);
    let outcomes: Vec<_> = answers.into_iter().map(outcome).collect();
    for (partition, outcome) in (0..).zip(&outcomes) {
        match partition {
            1 => assert!(is_unknown(outcome, 1), "{outcome:?}"),
            _ => assert!(outcome.is_ok(), "{outcome:?}"),
        }
    }
    // It is not here any more, whatever the node says.
    assert_eq!(node.ranges.missing_partitions(), [1]);
    node.host.end(1);
    let words = outcomes[1].as_ref().unwrap_err().to_string();
    assert!(
        words.contains("partition 1") && words.contains("same id"),
        "{words}"
    );
}

#[test]
fn an_ended_partition_fails_its_answers_though_the_log_is_slow() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    reserved(&node, "sync");
    kept_logs.hold(node.life, true);
    let taken = claim(&node, 5);
    kept_logs.until_held();
    // One is being written, the other is not.
    let logged = claim(&node, 9);
    let other = claim(&node, 6);
    let (_, blocked) = claim(&node, 13).into_parts();
    let waits = thread::spawn(move || blocked.wait());
    node.host.end(1);
    assert!(is_unknown(&outcome(taken), 1));
    assert!(is_unknown(&outcome(logged), 1));
    assert!(is_unknown(&waits.join().unwrap(), 1));
    let (_, until) = other.into_parts();
    assert!(!until.is_reached().unwrap());
    kept_logs.hold(node.life, false);
    until.wait().unwrap();
}

#[test]
fn answers_about_other_partitions_do_not_wait_for_what_is_gone() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    let held = claim(&node, 6).wait().unwrap();
    kept_logs.hold(node.life, true);
    let written = claim(&node, 10);
    kept_logs.until_held();
    // It tells of what others did, so it waits for all that is logged, which is lost.
    let logged = claim(&node, 5);
    let refused = claim(&node, held.value);
    node.host.end(1);
    kept_logs.hold(node.life, false);
    outcome(written).unwrap();
    assert!(is_unknown(&outcome(logged), 1));
    let refused = outcome(refused);
    assert!(matches!(refused, Err(Failed::Refused(Refused::Reserved))));
}

#[test]
fn a_task_that_waits_for_an_ended_partition_is_woken() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    kept_logs.hold(node.life, true);
    let answers = [claim(&node, 5), claim(&node, 6)];
    let [lost, kept] = answers;
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(async {
        let lost = tokio::spawn(lost.into_future());
        let kept = tokio::spawn(kept.into_future());
        tokio::task::yield_now().await;
        node.host.end(1);
        assert!(is_unknown(&lost.await.unwrap(), 1));
        assert!(!kept.is_finished());
        kept_logs.hold(node.life, false);
        assert!(kept.await.unwrap().is_ok());
    });
}

#[test]
fn an_ask_with_an_id_can_be_repeated_when_its_outcome_is_not_known() {
    let kept_logs = KeptLogs::new();
    let [a, b] = [(); 2].map(|()| kept_logs.start(options()));
    kept_logs.take(2, &a);
    let prefer = anywhere(&a.ranges, "sync");
    let ask = Ask {
        id: Some(b"order 7"),
        vouched: Some(Vouched {
            partition: partitions().of_name(b"order 7"),
            epoch: 1,
            beside: None,
        }),
        ..Ask::new(&prefer)
    };
    // Written, but the answer is lost with the node.
    kept_logs.hold(a.life, true);
    let answer = a.ranges.reserve(&ask);
    kept_logs.until_held();
    a.host.end(2);
    assert!(is_unknown(&outcome(answer), 2));
    kept_logs.hold(a.life, false);
    kept_logs.until(|state| state.sections(2) > 0);
    eventually(|| kept_logs.state().clock(2).is_some());
    kept_logs.lose(2);
    kept_logs.take(2, &b);
    let prefer = anywhere(&b.ranges, "sync");
    let ask = Ask {
        prefer: &prefer,
        ..ask
    };
    let again = b.ranges.reserve(&ask).wait().unwrap()[0];
    let once_more = b.ranges.reserve(&ask).wait().unwrap()[0];
    assert_eq!(once_more.value, again.value);
    assert!(once_more.is_known);
}

#[test]
fn what_was_not_acknowledged_may_be_gone_and_what_was_is_not() {
    let kept_logs = KeptLogs::new();
    let [a, b] = [(); 2].map(|()| kept_logs.start(options()));
    kept_logs.take(0, &a);
    let told = reserved(&a, "sync");
    kept_logs.hold(a.life, true);
    let untold = reserve(&a, "sync");
    kept_logs.until_held();
    kept_logs.lose(0);
    kept_logs.take(0, &b);
    kept_logs.hold(a.life, false);
    assert!(is_unknown(&outcome(untold), 0));
    assert_eq!(holder(&b, told.value), Some(told.fence));
    let next = reserved(&b, "sync");
    assert!(next.value != told.value && next.fence > told.fence);
}

#[test]
fn a_node_that_is_gone_answers_all_that_waited() {
    let kept_logs = KeptLogs::new();
    let node = kept_logs.start_with_all(options());
    reserved(&node, "sync");
    kept_logs.hold(node.life, true);
    let answers: Vec<_> = (4..12).map(|value| claim(&node, value)).collect();
    let ranges = node.ranges.clone();
    kept_logs.kill(node);
    for answer in answers {
        assert!(matches!(outcome(answer), Err(Failed::Unknown { .. })));
    }
    let prefer = anywhere(&ranges, "sync");
    let refused = ranges.reserve(&Ask::new(&prefer)).wait();
    assert!(matches!(
        refused,
        Err(Failed::Refused(Refused::Exhausted { .. }))
    ));
}
