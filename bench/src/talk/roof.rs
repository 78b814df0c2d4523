//! The roof: a server that does nothing, and so says how far any could get here.
//!
//! It is this program again. One thread reads what there is, from all clients
//! that said something, and answers every command with the same few bytes, as
//! one write a connection. Given a file, it writes what it read to it and has
//! the system make that safe before it answers; the file has its size from the
//! beginning, so that this is one write to the disk and no more.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

/// What makes this program the roof.
pub(crate) const WORD: &str = "--roof";

/// What every command is answered.
const ANSWER: &[u8] = b":1\r\n";
/// This many connections are heard before the first of them is answered.
const EVENTS: usize = 128;
/// What the file has room for.
const LOG: u64 = 16 * 1024 * 1024;
/// The listener; connections are numbered from here on.
const LISTENER: u64 = 0;

struct Roof {
    epoll: rustix::fd::OwnedFd,
    listener: TcpListener,
    log: Option<Log>,
    lines: Vec<Line>,
    /// What was read since the last answers.
    heard: Vec<u8>,
}

/// A file that is written again and again from its beginning.
struct Log {
    file: File,
    at: u64,
}

struct Line {
    stream: TcpStream,
    /// Commands that are not answered.
    asked: usize,
}

/// Serve where the words say, until this program is ended.
pub(crate) fn serve(words: &[String]) -> ! {
    let served = match words {
        [address] => Roof::open(address, None),
        [address, file] => Roof::open(address, Some(file)),
        _ => Err(io::Error::other("an address, and perhaps a file")),
    };
    let error = served.and_then(Roof::run).err();
    eprintln!("the roof ends: {error:?}");
    process::exit(1)
}

impl Roof {
    fn open(address: &str, file: Option<&String>) -> io::Result<Self> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let listener = TcpListener::bind(address)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let number = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, number, epoll::EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            log: file.map(Log::create).transpose()?,
            lines: Vec::new(),
            heard: Vec::new(),
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            let numbers = || events.iter().map(|event| event.data.u64());
            for number in numbers() {
                match number {
                    LISTENER => self.let_in()?,
                    number => self.hear(number)?,
                }
            }
            self.be_safe()?;
            for number in numbers().filter(|number| *number != LISTENER) {
                self.lines[index(number)].answer()?;
            }
        }
    }

    fn let_in(&mut self) -> io::Result<()> {
        let (stream, _) = self.listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.lines.push(Line { stream, asked: 0 });
        let number = epoll::EventData::new_u64(self.lines.len() as u64);
        let stream = &self.lines[self.lines.len() - 1].stream;
        epoll::add(&self.epoll, stream, number, epoll::EventFlags::IN)?;
        Ok(())
    }

    fn hear(&mut self, number: u64) -> io::Result<()> {
        let line = &mut self.lines[index(number)];
        let mut bytes = [0; 16 * 1024];
        match line.stream.read(&mut bytes) {
            // A client that has gone says nothing more, and is forgotten with
            // the roof.
            Ok(0) => epoll::delete(&self.epoll, &line.stream)?,
            Ok(len) => {
                let said = &bytes[..len];
                // Every command is an array, and nothing else in it has a star.
                line.asked += said.iter().filter(|byte| **byte == b'*').count();
                if self.log.is_some() {
                    self.heard.extend_from_slice(said);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                epoll::delete(&self.epoll, &line.stream)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn be_safe(&mut self) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        if !self.heard.is_empty() {
            log.keep(&self.heard)?;
            self.heard.clear();
        }
        Ok(())
    }
}

impl Log {
    fn create(path: &String) -> io::Result<Self> {
        let mut file = File::create(path)?;
        // A hole would be filled by the first write to it, and cost more.
        file.write_all(&vec![0; LOG as usize])?;
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.at + bytes.len() as u64 > LOG {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.file.sync_data()
    }
}

impl Line {
    fn answer(&mut self) -> io::Result<()> {
        if self.asked > 0 {
            let answers = ANSWER.repeat(self.asked);
            self.asked = 0;
            // Clients wait for their answers, so there is always room.
            self.stream.write_all(&answers)?;
        }
        Ok(())
    }
}

fn index(number: u64) -> usize {
    number as usize - 1
}
