//! The `dolomedes` binary: allocator, crash policy, exit code. Everything else is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // A thread that panicked may have died between two steps that belong together; another thread going on with what
    // it left behind could lose or repeat work. So the process ends, and the next start recovers as from a crash.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        eprintln!(
            "dolomedes: internal error, stopping; nothing acknowledged is lost, run the same command to go on"
        );
        std::process::abort();
    }));
    dolomedes::cli::main()
}
