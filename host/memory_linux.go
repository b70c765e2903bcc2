package host

import "golang.org/x/sys/unix"

// Memory returns the host's main memory in bytes, or 0 when the kernel does not
// say. A limit of the process's own control group is not looked at.
func Memory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}
