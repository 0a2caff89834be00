// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// The texts of these errors stand alone, as Docker's do; the class is in the
// type.

func errInvalid(format string, args ...any) error {
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(format, args...))
}

func errNotFound(format string, args ...any) error {
	return errdefs.ErrNotFound.WithMessage(fmt.Sprintf(format, args...))
}

func errConflict(format string, args ...any) error {
	return errdefs.ErrConflict.WithMessage(fmt.Sprintf(format, args...))
}

func errUnauthenticated(format string, args ...any) error {
	return errdefs.ErrUnauthenticated.WithMessage(fmt.Sprintf(format, args...))
}

// classed gives err a class of errdefs and keeps its text and its chain.
type classed struct{ class, err error }

func (c classed) Error() string   { return c.err.Error() }
func (c classed) Unwrap() []error { return []error{c.err, c.class} }

// asInvalid marks err as the caller's fault.
func asInvalid(err error) error { return classed{errdefs.ErrInvalidArgument, err} }

// asUnavailable marks err as that of a registry that cannot be reached or
// does not do its work.
func asUnavailable(err error) error { return classed{errdefs.ErrUnavailable, err} }

// BusyError is a root, or anything else of this package, that cannot be
// unmounted or deleted yet: something is mounted within, or somebody holds it,
// as a jail does that is dying (facts/freebsd.md, "A dying jail"). Nothing of
// it was deleted, and the same call succeeds once what holds it is gone. It is
// errdefs.ErrFailedPrecondition.
type BusyError struct {
	What   string   // path or dataset
	Mounts []string // mount points within it; may be empty
	Err    error    // what the system said; may be nil
}

func (e *BusyError) Error() string {
	if len(e.Mounts) > 0 {
		return fmt.Sprintf("refusing to delete %s: still mounted there: %s", e.What, strings.Join(e.Mounts, ", "))
	}
	return fmt.Sprintf("%s is in use: %v", e.What, e.Err)
}

func (e *BusyError) Unwrap() []error {
	if e.Err == nil {
		return []error{errdefs.ErrFailedPrecondition}
	}
	return []error{errdefs.ErrFailedPrecondition, e.Err}
}

// IsBusy tells whether err is a BusyError: worth another try, and no fault.
func IsBusy(err error) bool { return errors.As(err, new(*BusyError)) }
