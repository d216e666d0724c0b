//! `requeue dlq export`: where the lines go. A device, a pipe or a link is never replaced by a
//! file.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dlq_world::World;
use crate::run::scratch;

/// An empty directory of this test alone.
fn directory(name: &str) -> PathBuf {
    let path = scratch(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn made(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).stderr(Stdio::null()).status().unwrap().success()
}

#[tokio::test]
async fn a_pipe_is_written_into_also_behind_a_link_and_stays() {
    let world = World::filled("annotate").await;
    let directory = directory("export-pipe");
    let (pipe, link) = (directory.join("pipe"), directory.join("link"));
    assert!(made("mkfifo", &[text(&pipe)]));
    symlink(&pipe, &link).unwrap();
    for file in [&pipe, &link] {
        let from = pipe.clone();
        let reader = tokio::task::spawn_blocking(move || fs::read_to_string(from).unwrap());
        let run = world.dlq(&["export", text(file)]).await;
        assert_eq!((run.status, reader.await.unwrap().lines().count()), (0, 5), "{run:?}");
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo() && link.is_symlink());
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "nothing else is made");
}

#[tokio::test]
#[ignore = "takes seven seconds or more: cargo test -- --ignored"]
async fn what_is_open_already_is_written_into_behind_what_is_there() {
    let world = World::filled("annotate").await;
    let run = world.dlq(&["export", "/dev/stdout"]).await;
    assert_eq!((run.status, run.stdout.lines().count()), (0, 5), "{run:?}");
    let file = directory("export-open").join("file");
    for (target, redirection) in
        [("/dev/stdout", ">>"), ("/dev/fd/3", "3>>"), ("/proc/self/fd/3", "3>>")]
    {
        fs::write(&file, "before\n").unwrap();
        let script =
            format!(r#"exec "$0" dlq export --queue-url "$1" {target} {redirection} "$2""#);
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &script,
            env!("CARGO_BIN_EXE_requeue"),
            &world.url(&world.dead_letters),
            text(&file),
        ]);
        command.env_clear().envs(world.variables()).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let written = fs::read_to_string(&file).unwrap();
        assert!(output.status.success(), "{target}: {output:?}");
        assert_eq!(
            (written.lines().next(), written.lines().count()),
            (Some("before"), 6),
            "{target}"
        );
    }
}

#[tokio::test]
#[cfg_attr(not(target_os = "linux"), ignore = "there is no /dev/full")]
async fn a_device_is_written_into_and_stays() {
    let world = World::filled("annotate").await;
    let directory = directory("export-device");
    // Only root can create these. Other users test with those of the machine, which they cannot
    // write to.
    let null = directory.join("null");
    let null = if made("mknod", &[text(&null), "c", "1", "3"]) {
        null
    } else {
        PathBuf::from("/dev/null")
    };
    for force in [&[][..], &["--force"]] {
        let run = world.dlq(&[&["export", text(&null)], force].concat()).await;
        assert!(run.status == 0 && run.stderr.contains("5 messages written"), "{run:?}");
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
    }
    let full = world.dlq(&["export", "/dev/full"]).await;
    assert!(full.status == 1 && full.stderr.contains("No space left on device"), "{full:?}");
    let disk = directory.join("disk");
    if made("mknod", &[text(&disk), "b", "240", "0"]) {
        let run = world.dlq(&["export", text(&disk), "--force"]).await;
        assert_eq!(
            (run.status, run.stderr),
            (1, format!("error: {} is a block device; name a file or a pipe\n", disk.display()))
        );
    }
    let run = world.dlq(&["export", text(&directory), "--force"]).await;
    assert!(
        run.status == 1 && run.stderr.contains("is a directory; name a file or a pipe"),
        "{run:?}"
    );
    world.assert_all_visible();
}

#[tokio::test]
async fn behind_a_link_the_file_is_replaced_and_the_link_stays() {
    let world = World::filled("annotate").await;
    let directory = directory("export-link");
    let (elsewhere, file, link) =
        (directory.join("elsewhere"), directory.join("elsewhere/file"), directory.join("link"));
    fs::create_dir(&elsewhere).unwrap();
    symlink("elsewhere/file", &link).unwrap();
    for force in [&[][..], &["--force"]] {
        let run = world.dlq(&[&["export", text(&link)], force].concat()).await;
        assert!(
            run.status == 1
                && run.stderr.contains(
                    "is a symbolic link to a file that does not exist; name that file itself"
                ),
            "{run:?}"
        );
        assert!(!file.exists() && link.is_symlink());
    }
    fs::write(&file, "before\n").unwrap();
    let mut before = File::open(&file).unwrap();
    let run = world.dlq(&["export", text(&link)]).await;
    assert!(run.status == 1 && run.stderr.contains("exists already"), "{run:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "before\n");
    let run = world.dlq(&["export", text(&link), "--force"]).await;
    assert_eq!((run.status, fs::read_to_string(&file).unwrap().lines().count()), (0, 5), "{run:?}");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("elsewhere/file"));
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        1,
        "the file was replaced at once, and nothing is left over"
    );
    assert_eq!(
        std::io::read_to_string(&mut before).unwrap(),
        "before\n",
        "it was replaced, not written over"
    );
}
