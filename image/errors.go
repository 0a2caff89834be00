// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"fmt"

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
