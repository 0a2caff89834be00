// SPDX-License-Identifier: BSD-2-Clause

package shim

import "errors"

func setInJail(int, string) error { return errors.New("there are no jails here") }
