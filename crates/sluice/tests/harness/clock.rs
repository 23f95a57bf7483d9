//! A clock for a process of its own, which differs from the machine's and can be set while it runs.

use std::path::Path;
use std::process::Command;

/// Stands before the C library's own, and adds the seconds that a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    int before = errno;
    char text[32] = {0};
    const char *path = getenv("TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
        close(fd);
    }
    errno = before;
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, at);
    if (result == 0 && clock == CLOCK_REALTIME) at->tv_sec += ahead();
    return result;
}

int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"#;

/// A clock that can be set.
pub struct Clock {
    library: String,
    file: String,
}

impl Clock {
    /// Its files are in this folder.
    pub fn make(folder: &Path) -> Self {
        let path = |name: &str| folder.join(name).display().to_string();
        let (source, library, file) = (path("clock.c"), path("clock.so"), path("clock"));
        std::fs::write(&source, CLOCK).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o", &library, &source, "-ldl"]);
        assert!(cc.status().expect("cc runs").success());
        Self { library, file }
    }

    /// The clock is this far ahead of the machine's from now on.
    pub fn set(&self, seconds: i64) {
        let new = format!("{}.new", self.file);
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// The variables of a process that has this clock.
    pub fn environment(&self) -> [(&str, &str); 2] {
        [("LD_PRELOAD", self.library.as_str()), ("TEST_CLOCK", self.file.as_str())]
    }
}
