// Package bootstrap makes the cloud-init user data that every VM runs on its first boot, the same
// on every cloud, and the shell command that asks a VM how far it has come.
//
// The user data is one #cloud-config document. Its write_files put down a script, the script's
// settings, the NGINX configuration and, if there is one, the user's own script; its runcmd links
// the script among cloud-init's per-boot scripts and runs it. The link is what makes an
// interrupted bootstrap go on: cloud-init marks runcmd as done before it runs, so a VM that
// restarts midway would otherwise never get a second try. The script leaves alone what is already
// so, which makes the later boots harmless, and cloud-init's per-boot scripts run before the link
// exists on the first boot, so it does not run twice there.
//
// The script's result is a file: SentinelPath when all steps worked, FailedPath with the step and
// the exit code when one did not. ProbeScript turns these, and cloud-init's own state where there
// is neither, into an exit code. On Compute Engine, which has no command that answers, a small
// script beside it publishes the same as guest attributes.
package bootstrap
