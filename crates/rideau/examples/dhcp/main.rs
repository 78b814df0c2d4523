//! Serves addresses as a DHCP server would, from a store in a folder of its own.
//!
//!     cargo run --release --features store --example dhcp [-- --quick]
//!
//! First all addresses of two ranges are given out and lapse, and a report says
//! how that went: each count is of answers that took up to this many milliseconds.
//! Then clients come, renew at half time and go, and the times are shown while
//! they do.

mod load;
mod report;
mod seed;

use std::env;
use std::error::Error;
use std::fs;
use std::thread;
use std::time::Duration;

use rideau::store::Embedded;
use rideau::{Ranges, RangesOptions};

use crate::load::Clients;
use crate::seed::Plan;

fn main() -> Result<(), Box<dyn Error>> {
    let is_quick = env::args().any(|arg| arg == "--quick");
    let (plan, clients) = match is_quick {
        true => (Plan::QUICK, Clients::QUICK),
        false => (Plan::FULL, Clients::FULL),
    };
    let folder = env::temp_dir().join(format!("rideau-dhcp-{}", std::process::id()));
    let served = serve(&folder, plan, clients);
    fs::remove_dir_all(&folder)?;
    served
}

fn serve(folder: &std::path::Path, plan: Plan, clients: Clients) -> Result<(), Box<dyn Error>> {
    let options = RangesOptions {
        ranges: seed::ranges(plan.prefix),
        ..RangesOptions::default()
    };
    let ranges = Ranges::open(Box::new(Embedded::open(folder)?), options)?;
    println!(
        "Test: prepared to proceed with {} allocations.\n",
        plan.values()
    );
    let report = seed::run(&ranges, plan, thread::sleep)?;
    println!("{report}");
    println!("{}\n", seed::run_nearly_full(&ranges, plan)?);

    println!("{} clients", clients.count);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_time()
        .build()?;
    let times = runtime.block_on(load::run(&ranges, clients, Duration::from_secs(1)))?;
    println!("{times}");
    Ok(())
}
