//! A client with one connection, that speaks just enough of the protocol.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything takes on a busy machine; it only catches what hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One connection. Dropping it is a crash of the client; only `QUIT` is not.
pub(crate) struct Peer(BufReader<TcpStream>);

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Text(String),
    Number(i64),
    List(Vec<Self>),
    Error(String),
}

impl Answer {
    /// A list of texts and numbers, as words.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Number(number) => vec![number.to_string()],
            Self::List(list) => list.iter().flat_map(Self::words).collect(),
            Self::Error(error) => panic!("{error}"),
        }
    }
}

/// A member that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) ticket: String,
    pub(crate) value: String,
}

impl Peer {
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self(BufReader::new(stream))
    }

    pub(crate) async fn send(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(bytes.as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        timeout(LONG, self.read()).await.unwrap()
    }

    pub(crate) async fn ask(&mut self, line: &str) -> Answer {
        self.send(line).await;
        self.answer().await
    }

    /// Take a member that has to be there in the end.
    pub(crate) async fn take(&mut self, pool: &str) -> Taken {
        self.send(&format!("TAKE {pool} WAIT 30000")).await;
        self.taken().await
    }

    /// What a take that was sent before came to.
    pub(crate) async fn taken(&mut self) -> Taken {
        let words = self.answer().await.words();
        assert_eq!(words[0], "go", "{words:?}");
        Taken {
            ticket: words[1].clone(),
            value: words[2].clone(),
        }
    }

    pub(crate) async fn release(&mut self, taken: &Taken) {
        let released = self.ask(&format!("RELEASE {}", taken.ticket)).await;
        assert!(!matches!(released, Answer::Error(_)), "{released:?}");
    }

    async fn read(&mut self) -> Answer {
        let line = self.line().await;
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse().unwrap();
        match kind {
            "+" => Answer::Text(rest.to_owned()),
            "-" => Answer::Error(rest.to_owned()),
            ":" => Answer::Number(number()),
            "$" if rest == "-1" => Answer::Text("nil".to_owned()),
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()).unwrap() + 2];
                self.0.read_exact(&mut bytes).await.unwrap();
                bytes.truncate(bytes.len() - 2);
                Answer::Text(String::from_utf8(bytes).unwrap())
            }
            "*" => {
                let mut list = Vec::new();
                for _ in 0..number() {
                    list.push(Box::pin(self.read()).await);
                }
                Answer::List(list)
            }
            _ => panic!("{line:?}"),
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.strip_suffix("\r\n").unwrap().to_owned()
    }
}
