//! A newer program that hangs in each step of an upgrade, and what systemd is told of one that
//! does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rideau_testing::{Signal, signal};

use crate::harness::{Harness, LONG, folder, is_soak, until};
use crate::upgrades::{APPS, Load, end, fake, is_alive, say, serving_pid};

/// Says what a newer server says, up to a word after which it hangs.
const HANGS: &str = "#!/usr/bin/env python3
import json, os, socket, struct, sys, time
if sys.argv[1] == 'check':
    sys.exit(0)
with open('FOLDER/hung', 'w') as file:
    file.write(f'{os.getpid()}\\n')
print('it goes well', file=sys.stderr, flush=True)
older = socket.socket(fileno=os.dup(0))
def say(word):
    text = json.dumps(word).encode()
    older.sendall(struct.pack('>I', len(text)) + text)
say({'say': 'hello', 'version': 'test', 'protocol': 1})
if 'AFTER' == 'ready':
    say({'say': 'ready'})
time.sleep(100000)
";

fn hangs_after(folder: &Path, word: &str) -> String {
    let path = folder.join(format!("hangs-after-{word}"));
    let text = HANGS.replace("FOLDER", &folder.display().to_string());
    fs::write(&path, text.replace("AFTER", word)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn a_program_that_hangs_is_ended_and_changes_nothing() {
    let folder = folder();
    let apps = format!("{APPS}[store]\npath = \"FOLDER/store\"\n");
    let harness = Harness::new(&folder, &apps);
    harness.get("/");
    let load = Load::begin(harness.front, 4);
    load.go_on(20);
    let pid = serving_pid(&harness);
    let hung = folder.join("hung");
    let silent = format!("echo $$ >{}; exec sleep 100000", hung.display());
    let mut cases = vec![(
        fake(&folder, "silent", "exit 0", &silent),
        "the newer server did not say in time that it is there",
    )];
    if is_soak() {
        let late = "the newer server's applications were not ready in time: signal: 9 (SIGKILL); \
                    it wrote last: it goes well";
        cases.push((hangs_after(&folder, "hello"), late));
        let late = "the newer server took over, and did not serve in time";
        cases.push((hangs_after(&folder, "ready"), late));
    }
    for (program, why) in &cases {
        let _ = fs::remove_file(&hung);
        let mut number = String::new();
        std::thread::scope(|scope| {
            let upgrade = scope.spawn(|| harness.try_cli(&["upgrade", "--program", program]));
            until("it is there, and hangs", || {
                number = fs::read_to_string(&hung).unwrap_or_default();
                number.ends_with('\n') || upgrade.is_finished()
            });
            // Nobody who asks over HTTP notices anything.
            if !program.ends_with("ready") {
                load.go_on(100);
            }
            let (code, said) = upgrade.join().unwrap().unwrap_err();
            assert_eq!(code, Some(1), "{said}");
            assert!(
                said.contains("upgrade_failed") && said.contains(why),
                "{said}"
            );
        });
        assert!(!is_alive(number.trim().parse().unwrap()), "it was ended");
        assert_eq!(serving_pid(&harness), pid);
        load.go_on(50);
        let events = say(&harness, "SHOW EVENTS COUNT 50");
        assert!(events.contains(why), "{events}");
    }
    // One that does not hang takes over after all.
    harness.cli(&["upgrade"]);
    assert_ne!(serving_pid(&harness), pid);
    load.go_on(50);
    load.end();
    end(harness);
}

/// What the servers say to systemd.
#[test]
fn systemd_is_told_which_server_serves() {
    let folder = folder();
    Harness::write(&folder, "", APPS);
    let socket = folder.join("notify");
    let supervisor = UnixDatagram::bind(&socket).unwrap();
    supervisor.set_read_timeout(Some(LONG)).unwrap();
    let heard = || {
        let mut bytes = [0; 256];
        let len = supervisor.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    };
    let export = format!("export NOTIFY_SOCKET='{}'", socket.display());
    let harness = Harness::start_limited(&folder, &export);
    assert_eq!(heard(), "READY=1");
    harness.get("/");
    let failed = fake(&folder, "ends", "exit 0", "exit 1");
    harness
        .try_cli(&["upgrade", "--program", &failed])
        .unwrap_err();
    let older = serving_pid(&harness);
    harness.cli(&["upgrade"]);
    let newer = serving_pid(&harness);
    assert_ne!(older, newer);
    // The service has started already, and goes on: there is nothing else to say. That the
    // older one ends is not the end of the service.
    assert_eq!(heard(), format!("MAINPID={newer}"));
    until("the end of the older one", || !is_alive(older));
    signal(newer as u32, Signal::TERM);
    assert_eq!(heard(), "STOPPING=1");
    end_of(harness, newer);
}

/// The server was told to end: wait for it.
fn end_of(harness: Harness, pid: i32) {
    until("its end", || !is_alive(pid));
    let folder = harness.folder.clone();
    drop(harness);
    fs::remove_file(folder.join("notify")).unwrap();
    crate::harness::nothing_is_left(&folder);
}
