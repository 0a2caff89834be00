// SPDX-License-Identifier: BSD-2-Clause

package jail

// executes returns true when the child pid, started as a program of the name
// comm, executes another one, and false when it has ended.
func executes(pid int, comm string, ended <-chan struct{}) bool {
	return pollExecutes(pid, comm, ended)
}
