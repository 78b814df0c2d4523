//! A client of etcd, for what several servers share.
//!
//! It has the calls that a store and a membership need, and no more: transactions, reads,
//! leases, watches, compaction, and a member's status. What matters is what a failed call
//! means: [`EtcdError`] says whether etcd may have done it. A [`LeaseKeeper`] counts a
//! reply for its own request only, and an [`EtcdWatch`] gives whole revisions in order.
//! What a node of a cluster asks is [carried out](EtcdClient::carry_out) as it stands.
//!
//! ```no_run
//! use rideau::store::etcd::{EtcdClient, EtcdOptions, KeyStamp, Txn, TxnOp};
//!
//! # async fn example() -> Result<(), rideau::store::etcd::EtcdError> {
//! let options = EtcdOptions::plain(["http://10.0.0.1:2379", "http://10.0.0.2:2379"]);
//! let client = EtcdClient::connect(options).await?;
//! let txn = Txn::new()
//!     .when("leader", KeyStamp::Created, 0)
//!     .then(TxnOp::put("leader", "n1"));
//! let reply = client.txn(txn).await?;
//! assert!(reply.holds, "there was a leader already");
//! # Ok(())
//! # }
//! ```

mod client;
mod codec;
mod error;
mod keys;
mod lease;
mod messages;
mod options;
mod requests;
mod targets;
mod txn;
mod version;
mod watch;

pub use client::{EtcdClient, EtcdStatus};
pub use error::{EtcdDoubt, EtcdError, EtcdRefusal};
pub use keys::{EtcdKey, EtcdKeys, EtcdRead, KeyRange};
pub use lease::{EtcdLease, KeptAlive, LeaseId, LeaseKeeper};
pub use options::{EtcdLogin, EtcdOptions, EtcdTls};
pub use txn::{KeyStamp, Txn, TxnDone, TxnOp, TxnReply};
pub use watch::{EtcdWatch, KeyChange, Watched};
