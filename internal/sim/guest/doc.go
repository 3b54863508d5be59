// Package guest is what runs inside a simulated virtual machine: a small Linux with a file system in memory, packages,
// services and Docker, that takes user data as cloud-init does and runs shell scripts.
//
// Scripts are really parsed and interpreted, so that a file which a script would write appears only if the script gets
// that far. But nothing is executed: every command is a simulation in this package, working on the machine's own state, and
// no file or process of the host is touched. Commands that need the network fail, after the time that they would hang,
// when the machine has no way out.
//
// A [Machine] is plain data and may be copied through JSON. Time is virtual: commands take as long as they would, and the
// caller learns how long that was.
package guest
