//! A transaction of etcd for each reservation, and another for each release: what a program
//! does that keeps a pool of values in etcd without us.

use std::time::Duration;

use rideau::store::etcd::{EtcdClient, EtcdOptions, KeyRange, KeyStamp, Txn, TxnOp};
use tokio::runtime::Runtime;

use super::DATA;
use super::parties::{self, Party};
use crate::measure::{Plan, Sample, Stall};
use crate::talk::Server;

/// A client of etcd.
pub(super) struct EtcdTxn {
    pub(super) client: EtcdClient,
    pub(super) runtime: Runtime,
}

/// Reserves and releases, one after the other.
struct TxnParty {
    client: EtcdClient,
    at: usize,
    serial: u64,
}

impl EtcdTxn {
    pub(super) fn connect(etcd: &Server) -> Self {
        let runtime = parties::runtime();
        let url = format!("http://{}", etcd.address);
        let client = runtime.block_on(EtcdClient::connect(EtcdOptions::plain([url])));
        let client = client
            .expect("etcd answers")
            .with_timeout(Duration::from_secs(30));
        Self { client, runtime }
    }

    /// One run.
    pub(super) fn run(&self, etcd: &Server, plan: &Plan) -> Result<Sample, Stall> {
        parties::run(&self.runtime, &[etcd], plan, async |at| TxnParty {
            client: self.client.clone(),
            at,
            serial: 0,
        })
    }
}

impl Party for TxnParty {
    async fn turn(&mut self) {
        self.serial += 1;
        let key = format!("/bench/{:02}/{:04}", self.at, self.serial % 10_000);
        let put = TxnOp::put(key.clone(), DATA);
        let take = Txn::new().when(key.clone(), KeyStamp::Version, 0).then(put);
        let reply = self.client.txn(take).await.expect("etcd answers");
        assert!(reply.holds, "no value is taken twice");
        let give = TxnOp::Delete(KeyRange::key(key));
        let given = self.client.txn(Txn::new().then(give)).await;
        given.expect("etcd answers");
    }
}
