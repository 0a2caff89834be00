// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// A test of several nodes waits for them most of its time, so that more of
// them run at a time than there are processors, unless -parallel says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := flag.Set("test.parallel", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
