//! Short statements about what runs: CANCEL JOB, PAUSE, RESUME, WAIT, REFRESH, FLUSH, CHECKPOINT, ADD and KILL WORKER, BACKUP.

use super::object;
use crate::ast::{ObjectReference, Statement};
use crate::error::Failure;
use crate::reader::{Parse, Reader};

/// After `word`; `None` for what sqlparser reads.
pub(super) fn parse(reader: &mut Reader<'_>, word: &str) -> Parse<Option<Statement>> {
    Ok(Some(match word {
        "CANCEL" => {
            if reader.take_one_of(&["JOB", "JOBS"]).is_none() {
                return Err(reader.unexpected("JOB and its number"));
            }
            Statement::CancelJob(reader.number()?)
        }
        "PAUSE" => Statement::Pause(reference(reader)?),
        "RESUME" => Statement::Resume(reference(reader)?),
        "WAIT" => Statement::Wait,
        "REFRESH" => {
            reader.need(&["MATERIALIZED", "VIEW"])?;
            // Those who read it wait for nothing in any case.
            let _ = reader.take(&["CONCURRENTLY"]);
            let name = reader.name()?;
            let at = reader.here();
            if reader.take(&["WITH", "NO", "DATA"]) {
                let hint = "Drop it if its rows are not needed.";
                return Err(Failure::unsupported(
                    "REFRESH .. WITH NO DATA is not supported",
                    at,
                    hint,
                ));
            }
            let _ = reader.take(&["WITH", "DATA"]);
            Statement::Refresh(name)
        }
        "FLUSH" if reader.at_end() => Statement::Flush,
        "CHECKPOINT" if reader.at_end() => Statement::Checkpoint,
        "ADD" if reader.take(&["WORKER"]) => Statement::AddWorker,
        "KILL" if reader.take(&["WORKER"]) => Statement::KillWorker(reader.number()?),
        "BACKUP" => {
            reader.need(&["TO"])?;
            Statement::Backup { to: reader.string()? }
        }
        _ => return Ok(None),
    }))
}

fn reference(reader: &mut Reader<'_>) -> Parse<ObjectReference> {
    let kind = object::need_kind(reader)?;
    Ok(ObjectReference {
        kind,
        name: reader.name()?,
    })
}
