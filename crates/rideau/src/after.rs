//! Work that a step leaves for after its lock is released.

use std::task::Waker;

/// Wakes and calls that must not happen under a lock, in the order in which
/// they were asked for.
#[derive(Default)]
pub struct After {
    /// Nearly every step wakes at most one, and then needs no memory for it.
    first: Option<Waker>,
    more: Option<Box<Tasks>>,
}

/// Behind a pointer, for few steps have more.
#[derive(Default)]
struct Tasks(Vec<Task>);

enum Task {
    Wake(Waker),
    Call(Box<dyn FnOnce() + Send>),
}

impl After {
    /// Wake a task.
    #[inline]
    pub fn wake(&mut self, waker: Waker) {
        if self.first.is_none() {
            self.first = Some(waker);
        } else {
            self.add(Task::Wake(waker));
        }
    }

    /// Call this.
    pub fn call(&mut self, call: impl FnOnce() + Send + 'static) {
        self.add(Task::Call(Box::new(call)));
    }

    #[cold]
    fn add(&mut self, task: Task) {
        self.more.get_or_insert_default().0.push(task);
    }

    #[inline]
    pub(crate) fn run(self) {
        if let Some(waker) = self.first {
            waker.wake();
        }
        if let Some(more) = self.more {
            run_all(more.0);
        }
    }
}

#[cold]
fn run_all(tasks: Vec<Task>) {
    for task in tasks {
        match task {
            Task::Wake(waker) => waker.wake(),
            Task::Call(call) => call(),
        }
    }
}
