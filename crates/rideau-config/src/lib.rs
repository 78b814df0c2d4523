//! The file that says what the server does, as typed values.
//!
//! One TOML file. [`Config::parse`] finds all that is wrong with it in one go,
//! [`plan`] says what a change would mean, and [`text`] changes one value and
//! leaves the comments alone. Each key is one row in the struct that has it, see
//! `table.rs`: [`sample()`], [`schema()`] and the tables of the docs come from there,
//! too. What the values mean to a machine is said by the core, whose own options
//! they become.

mod access;
mod access_log;
mod acme;
mod acme_hosts;
mod alarm;
mod app;
mod broker;
mod certificate;
mod cluster;
mod compression;
mod config;
mod core_kinds;
mod core_read;
mod core_tables;
mod core_words;
mod error_page;
mod exec;
mod fault;
mod front;
mod homes;
mod hosts;
pub mod human;
mod key;
mod keyed;
mod kinds;
pub mod label;
mod lock;
mod near;
mod open;
mod parts;
pub mod password;
mod pattern;
mod plan;
mod pool;
mod quota;
mod range;
mod read;
mod reference;
mod route;
mod rules;
mod sample;
mod schema;
mod scope;
mod section;
mod sections;
mod server;
mod servers;
mod shared;
mod shown;
mod static_files;
mod table;
pub mod text;
mod upgrade;
mod upstream;
mod user;
mod view;
mod waiting_room;
mod words;

pub use access::{Hsts, HttpsRedirect, LimitBy, RateLimit, RequestRate, read_rate};
pub use access_log::{AccessFormat, AccessLog, HiddenPart, LoggedHeader};
pub use acme::{AcmeConfig, AcmeDirectory, MailAddress, challenge_word};
pub use alarm::{ALARM_NUMBERS, ALARMS_MAX, AlarmConfig, AlarmRule, AlarmUnit, PostUrl};
pub use app::{AppAccess, AppConfig, AppListen, AppReady, Health, Http, RunSpec};
pub use broker::{BrokerConfig, BrokerParts, Feed, RegulatorConfig, Source};
pub use certificate::CertificateConfig;
pub use cluster::{ClusterConfig, EtcdUrl};
pub use compression::Compression;
pub use config::{Config, Env};
pub use error_page::{ErrorPage, StatusPattern};
pub use exec::Exec;
pub use fault::{Fault, Faults, Level};
pub use front::{ErrorPages, FrontConfig, FrontListen, Network};
pub use key::Change;
pub use lock::{Buckets, LockRule};
pub use near::{edits, far};
pub use open::{Opening, openings};
pub use parts::{all_keys, change_of};
pub use pattern::{fits, globs};
pub use plan::{Live, Now, Plan, PlanStep, plan};
pub use pool::{GroupConfig, Member, PoolConfig};
pub use quota::{HTTP_CONNECTIONS_MAX, Quota};
pub use range::{Hold, OnFailure, RangeConfig, StoreConfig, StoreKind, class_word};
pub use reference::{tables, with_tables};
pub use route::{RedirectTarget, RouteConfig, TargetPart};
pub use sample::sample;
pub use schema::schema;
pub use scope::SharedBy;
pub use section::Unexpanded;
pub use server::{
    DeadPeer, History, Limits, Listen, Log, LogFormat, LogLevel, Series, Server, Tls,
};
pub use servers::{ServerPlace, ServerTls, UpstreamServers};
pub use shared::{SharedConfig, SplitFault, SplitText, join_shared, split_shared};
pub use static_files::StaticFiles;
pub use upgrade::{Percent, UpgradeConfig};
pub use upstream::UpstreamConfig;
pub use user::{
    ALLOWED, CONTROL, DEFAULT_USER, KINDS, OPERATOR, OWN, Password, Scope, User, is_control,
};
pub use view::ViewConfig;
pub use waiting_room::WaitingRoomConfig;
pub use words::{read_span, show_span};
