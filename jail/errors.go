// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"fmt"

	"github.com/containerd/errdefs"
)

func invalid(format string, args ...any) error {
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return errdefs.ErrNotImplemented.WithMessage(fmt.Sprintf(format, args...))
}

// notFound and notRunning are in Docker's words.
func notFound(id string) error {
	return errdefs.ErrNotFound.WithMessage("No such container: " + id)
}

func notRunning(id string) error {
	return errdefs.ErrConflict.WithMessage("container " + id + " is not running")
}

func isNotFound(err error) bool { return errdefs.IsNotFound(err) }

func errPaused(id string) error {
	return errdefs.ErrConflict.WithMessage("Container " + id + " is paused, unpause the container before exec")
}
