// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// When the second end of a veth pair comes up, the kernel tells the bridge and
// starts the queues from a work item that may run up to a second later
// (net/core/link_watch.c limits itself to one run a second); until then packets
// are dropped, and a container's first connection waits for a retransmission.
// Asking a device for its link by ethtool(8) runs that work for the device at
// once (ethtool_op_get_link calls linkwatch_sync_dev).

// glink is struct ethtool_value with ETHTOOL_GLINK (linux/ethtool.h).
type glink struct{ cmd, data uint32 }

// ifreqData is struct ifreq with its pointer member (linux/if.h).
type ifreqData struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the union is larger than a pointer
}

// syncLink makes the kernel honour the device's carrier now. The device is of
// the calling thread's network namespace.
func syncLink(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	value := glink{cmd: unix.ETHTOOL_GLINK}
	req := ifreqData{data: unsafe.Pointer(&value)}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	runtime.KeepAlive(&value)
	if errno != 0 && errno != unix.EOPNOTSUPP {
		return fmt.Errorf("ask %s for its link: %w", name, errno)
	}
	return nil
}

// inNetns runs f on a thread in the namespace; the thread ends with it.
func inNetns(ns *os.File, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}
