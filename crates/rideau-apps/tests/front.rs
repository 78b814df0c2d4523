//! The front, from outside: real sockets, apps that behave, and apps that do not.

#[path = "front/answers.rs"]
mod answers;
#[path = "front/bodies.rs"]
mod bodies;
#[path = "front/http2.rs"]
mod http2;
#[path = "front/http2_smuggling.rs"]
mod http2_smuggling;
#[path = "front/keep_alive.rs"]
mod keep_alive;
#[path = "front/limits.rs"]
mod limits;
#[path = "front/processes.rs"]
mod processes;
#[path = "front/program.rs"]
mod program;
#[path = "front/rides.rs"]
mod rides;
#[path = "front/slow_downloads.rs"]
mod slow_downloads;
#[path = "front/slow_uploads.rs"]
mod slow_uploads;
#[path = "front/smuggling.rs"]
mod smuggling;
#[path = "front/stage.rs"]
mod stage;
#[path = "front/streams.rs"]
mod streams;
#[path = "front/times.rs"]
mod times;
#[path = "front/upgrades.rs"]
mod upgrades;
#[path = "front/web_sockets.rs"]
mod web_sockets;
#[path = "front/wire.rs"]
mod wire;
