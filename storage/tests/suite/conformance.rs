//! Both engines pass the one suite.

use std::{fs, path::PathBuf};

use dolomedes_storage::{
    Result,
    conformance::{Subject, check},
    engine::Engine,
    memory::MemoryEngine,
};
use tempfile::TempDir;

struct Memory {
    engine: MemoryEngine,
    checkpoints: u32,
}

impl Subject for Memory {
    fn open(&mut self) -> Result<Box<dyn Engine>> {
        Ok(Box::new(self.engine.clone()))
    }

    fn crash(&mut self, _: Box<dyn Engine>) -> Result<Box<dyn Engine>> {
        self.engine = self.engine.crash(|unsynced| unsynced / 2);
        self.open()
    }

    fn checkpoint_dir(&mut self) -> PathBuf {
        self.checkpoints += 1;
        PathBuf::from(format!("checkpoint-{}", self.checkpoints))
    }
}

#[test]
fn memory_engine_conforms() {
    check(|| Memory { engine: MemoryEngine::new(), checkpoints: 0 }).unwrap();
}

struct Rocks {
    root: TempDir,
    incarnation: u32,
    checkpoints: u32,
}

impl Rocks {
    fn db(&self) -> PathBuf {
        self.root.path().join(format!("db-{}", self.incarnation))
    }
}

impl Subject for Rocks {
    fn open(&mut self) -> Result<Box<dyn Engine>> {
        Ok(Box::new(crate::open(&self.db())?))
    }

    /// A copy of the files at this moment is what a killed process leaves.
    fn crash(&mut self, engine: Box<dyn Engine>) -> Result<Box<dyn Engine>> {
        let left = self.db();
        self.incarnation += 1;
        fs::create_dir(self.db()).unwrap();
        for entry in fs::read_dir(left).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), self.db().join(entry.file_name())).unwrap();
            }
        }
        drop(engine);
        self.open()
    }

    fn checkpoint_dir(&mut self) -> PathBuf {
        self.checkpoints += 1;
        self.root.path().join(format!("checkpoint-{}", self.checkpoints))
    }
}

#[test]
fn rocks_engine_conforms() {
    check(|| Rocks { root: tempfile::tempdir().unwrap(), incarnation: 0, checkpoints: 0 }).unwrap();
}
