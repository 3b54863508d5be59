package databases

import "syscall"

// diesWithUs has a process end when the thread that started it does.
func diesWithUs(attr *syscall.SysProcAttr, with syscall.Signal) { attr.Pdeathsig = with }
