//! What an entry node and an owner tell each other of what is kept in memory, as frames.
//!
//! All of it has one shape: `row kind partition epoch ticket fence age what told`. What is
//! told goes to the client with an answer. The rows of a report are one field.

use std::time::Duration;

use rideau_core::cluster::{ReportedRow, RowAnswer, RowMessage};

use super::fields::{BadFrame, FrameFields, begin, signed};

/// Bytes of a row in a report, without what is held.
const ROW_LEN: usize = 8 + 8 + 8 + 4;
/// No fence: the row is an ask. No epoch is as large.
const NO_FENCE: u64 = u64::MAX;

/// The bytes that a message carries.
pub(super) fn len(message: &RowMessage) -> usize {
    match message {
        RowMessage::Ask { row, .. } => row.what.len(),
        RowMessage::End { how, .. } | RowMessage::DropRow { how, .. } => how.len(),
        RowMessage::Report { rows, .. } => rows.iter().map(|row| ROW_LEN + row.what.len()).sum(),
        _ => 0,
    }
}

/// Append a message.
pub(super) fn write(message: &RowMessage, told: &[u8], out: &mut Vec<u8>) {
    let (kind, partition, epoch, row) = match message {
        RowMessage::Ask {
            partition,
            epoch,
            row,
        } => (0, partition, epoch, row.clone()),
        RowMessage::Answer {
            partition,
            epoch,
            ticket,
            answer,
        } => {
            let (kind, fence) = match answer {
                RowAnswer::Granted { fence } => (1, Some(*fence)),
                RowAnswer::Refused => (2, None),
                RowAnswer::NotMine => (3, None),
            };
            let row = ReportedRow {
                fence,
                ..nothing(*ticket)
            };
            (kind, partition, epoch, row)
        }
        RowMessage::End {
            partition,
            epoch,
            ticket,
            how,
        } => (4, partition, epoch, ended(*ticket, how)),
        RowMessage::Ended {
            partition,
            epoch,
            ticket,
        } => (5, partition, epoch, nothing(*ticket)),
        RowMessage::Report {
            partition,
            epoch,
            rows,
        } => {
            let row = ReportedRow {
                what: write_report(rows),
                ..nothing(0)
            };
            (6, partition, epoch, row)
        }
        RowMessage::Reported { partition, epoch } => (7, partition, epoch, nothing(0)),
        RowMessage::DropRow {
            partition,
            epoch,
            ticket,
            how,
        } => (8, partition, epoch, ended(*ticket, how)),
        RowMessage::RowDropped {
            partition,
            epoch,
            ticket,
        } => (9, partition, epoch, nothing(*ticket)),
    };
    begin(out, "row", 8)
        .integer(kind)
        .integer((*partition).into())
        .integer(signed(*epoch))
        .integer(signed(row.ticket))
        .integer(signed(row.fence.unwrap_or(NO_FENCE)))
        .integer(signed(nanos(row.age)))
        .bulk(&row.what)
        .bulk(told);
}

/// A row that has a ticket and nothing else.
const fn nothing(ticket: u64) -> ReportedRow {
    ReportedRow {
        ticket,
        fence: None,
        age: Duration::ZERO,
        what: Vec::new(),
    }
}

/// A row that ended like this.
fn ended(ticket: u64, how: &[u8]) -> ReportedRow {
    ReportedRow {
        what: how.to_vec(),
        ..nothing(ticket)
    }
}

/// The message behind the verb `row`, and what is told with it.
pub(super) fn read(fields: &mut FrameFields) -> Result<(RowMessage, Vec<u8>), BadFrame> {
    let kind: u8 = fields.small()?;
    let (partition, epoch) = (fields.small()?, fields.number()?);
    let row = ReportedRow {
        ticket: fields.number()?,
        fence: Some(fields.number()?).filter(|fence| *fence != NO_FENCE),
        age: Duration::from_nanos(fields.number()?),
        what: fields.bytes()?,
    };
    let told = fields.bytes()?;
    let ticket = row.ticket;
    let answered = |answer| RowMessage::Answer {
        partition,
        epoch,
        ticket,
        answer,
    };
    let message = match kind {
        0 => RowMessage::Ask {
            partition,
            epoch,
            row,
        },
        1 => answered(RowAnswer::Granted {
            fence: row.fence.ok_or(BadFrame::Field)?,
        }),
        2 => answered(RowAnswer::Refused),
        3 => answered(RowAnswer::NotMine),
        4 => RowMessage::End {
            partition,
            epoch,
            ticket,
            how: row.what,
        },
        5 => RowMessage::Ended {
            partition,
            epoch,
            ticket,
        },
        6 => RowMessage::Report {
            partition,
            epoch,
            rows: read_report(&row.what).ok_or(BadFrame::Field)?,
        },
        7 => RowMessage::Reported { partition, epoch },
        8 => RowMessage::DropRow {
            partition,
            epoch,
            ticket,
            how: row.what,
        },
        9 => RowMessage::RowDropped {
            partition,
            epoch,
            ticket,
        },
        _ => return Err(BadFrame::Field),
    };
    Ok((message, told))
}

/// The rows of a report as bytes.
/// A report as it is sent, and left in etcd.
pub fn write_report(rows: &[ReportedRow]) -> Vec<u8> {
    let mut out = Vec::new();
    for row in rows {
        out.extend_from_slice(&row.ticket.to_be_bytes());
        out.extend_from_slice(&row.fence.unwrap_or(NO_FENCE).to_be_bytes());
        out.extend_from_slice(&nanos(row.age).to_be_bytes());
        let len = u32::try_from(row.what.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&row.what[..len as usize]);
    }
    out
}

/// The rows that bytes of a report stand for. None if they stand for no rows.
pub fn read_report(mut bytes: &[u8]) -> Option<Vec<ReportedRow>> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let ticket = u64::from_be_bytes(*take(&mut bytes)?);
        let fence = u64::from_be_bytes(*take(&mut bytes)?);
        let age = Duration::from_nanos(u64::from_be_bytes(*take(&mut bytes)?));
        let len = u32::from_be_bytes(*take(&mut bytes)?) as usize;
        let (what, rest) = bytes.split_at_checked(len)?;
        bytes = rest;
        rows.push(ReportedRow {
            ticket,
            fence: Some(fence).filter(|fence| *fence != NO_FENCE),
            age,
            what: what.to_vec(),
        });
    }
    Some(rows)
}

fn take<'a, const LEN: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; LEN]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn nanos(age: Duration) -> u64 {
    u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let rows = vec![
            ReportedRow {
                ticket: 7,
                fence: Some(9 << 32),
                age: Duration::from_millis(3),
                what: b"a lock".to_vec(),
            },
            ReportedRow {
                ticket: u64::MAX,
                fence: None,
                age: Duration::ZERO,
                what: Vec::new(),
            },
        ];
        let bytes = write_report(&rows);
        assert_eq!(read_report(&bytes), Some(rows));
        for end in 1..bytes.len() {
            let is_whole = end == ROW_LEN + 6;
            assert_eq!(read_report(&bytes[..end]).is_some(), is_whole, "{end}");
        }
    }
}
