// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"fmt"
	"os"
	"testing"
)

// children are what this test binary does, instead of its tests, when
// childVar names one: work in a process of its own, to be killed.
var children = map[string]func() error{}

const childVar = "SATLD_IMAGE_TEST_CHILD"

func TestMain(m *testing.M) {
	if name := os.Getenv(childVar); name != "" {
		if err := children[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
