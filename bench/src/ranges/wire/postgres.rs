//! PostgreSQL with a row for each address, locked by the client that takes it
//! and skipped by the others.
//!
//! One prepared statement looks for the device's lease and else takes the
//! address whose lease ended first, and is a transaction; so is the other. It
//! does what the others do, and keeps it as `redis-always` and our class `sync`
//! do: committed means that the log is on the disk. A process serves each
//! client. It gets more memory than its default, and no checkpoints within a
//! run, as an operator who runs it for this would see to.

use super::{ADDRESSES, Contestant, Crowd, DATA, HELD, POSTGRES, TTL_MS, device};
use crate::talk::{
    Dialog, Disk, Folder, Form, Server, Step, argument, greeting, statement, statement_around,
};

const OPTIONS: [&str; 3] = [
    "shared_buffers=512MB",
    "max_wal_size=8GB",
    "checkpoint_timeout=1h",
];

/// For a device: data, and how long.
const ALLOCATE: &str = "\
WITH had AS (
  UPDATE pool SET expires = now() + $3::text::interval, data = $2, fence = fence + 1
  WHERE device = $1 AND expires > now()
  RETURNING address, expires, fence
), took AS (
  UPDATE pool
  SET device = $1, data = $2, expires = now() + $3::text::interval, fence = fence + 1
  WHERE NOT EXISTS (SELECT FROM had) AND address = (
    SELECT address FROM pool WHERE expires <= now()
    ORDER BY expires LIMIT 1 FOR UPDATE SKIP LOCKED
  )
  RETURNING address, expires, fence
)
SELECT * FROM had UNION ALL SELECT * FROM took";

/// For an address: its device.
const RELEASE: &str = "\
UPDATE pool SET expires = now(), device = NULL, data = NULL, fence = fence + 1
WHERE address = $1::inet AND device = $2";

/// Bytes of an IPv4 address between client and server.
const ADDRESS_LEN: usize = 8;

pub(super) fn start(disk: &Disk) -> Option<Contestant> {
    let Some(server) = Server::postgres(Folder::within(&disk.folder), &OPTIONS) else {
        eprintln!("there is no PostgreSQL; on Debian: apt install postgresql");
        return None;
    };
    fill(&server);
    let dialogs = Box::new(|crowd: Crowd| {
        let interval = argument(format!("{TTL_MS} milliseconds").as_bytes());
        let data = argument(DATA.as_bytes());
        let statements = [("allocate", ALLOCATE), ("release", RELEASE)];
        crowd.dialogs(|at| Dialog {
            form: Form::Postgres { back: 0 },
            greeting: Some(greeting(&statements)),
            first: Step::Same(
                crowd.batch(at, |device| {
                    let device = argument(device.as_bytes());
                    statement("allocate", &[device, data.clone(), interval.clone()])
                }),
                crowd.depth,
            ),
            second: Step::Back {
                head: release(&device(at, 0)).0,
                tails: crowd.tails(at, |device| release(device).1),
            },
        })
    });
    Some(Contestant {
        name: POSTGRES,
        server,
        dialogs,
    })
}

/// What stands before the address and behind it; all devices are as long.
fn release(device: &str) -> (Vec<u8>, Vec<u8>) {
    statement_around("release", ADDRESS_LEN, &[argument(device.as_bytes())])
}

fn fill(server: &Server) {
    server.execute(
        "CREATE TABLE pool (address inet NOT NULL, expires timestamptz NOT NULL, device text, \
         data text, fence bigint NOT NULL)",
    );
    let last = ADDRESSES - 1;
    server.execute(&format!(
        "INSERT INTO pool SELECT inet '10.0.0.0' + at, now() + interval '1 day', \
           '06:00:00:' || regexp_replace(lpad(to_hex(at), 6, '0'), '(..)(..)', '\\1:\\2:'), \
           '{DATA}', 1 \
         FROM generate_series(0, {HELD} - 1) AS at"
    ));
    server.execute(&format!(
        "INSERT INTO pool SELECT inet '10.0.0.0' + at, 'epoch', NULL, NULL, 0 \
         FROM generate_series({HELD}, {last}) AS at"
    ));
    server.execute("ALTER TABLE pool ADD PRIMARY KEY (address)");
    server.execute("CREATE INDEX ON pool (expires)");
    server.execute("CREATE INDEX ON pool (device)");
    server.execute("VACUUM ANALYZE pool");
    server.execute("CHECKPOINT");
}
