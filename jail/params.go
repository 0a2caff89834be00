// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"maps"
	"slices"
	"strings"
)

// paramLabel begins the container labels that set a jail's parameters:
// satl.jail.allow.mlock=true.
const paramLabel = "satl.jail."

// allowParams are the parameters that ocijail takes as an annotation (facts/
// freebsd.md; its create.cpp). Others it would log and ignore. The kernel has
// the last word: some exist on newer systems only.
var allowParams = []string{
	"adjtime", "chflags", "extattr", "mlock", "mount", "mount.devfs", "mount.fdescfs", "mount.nullfs",
	"mount.procfs", "mount.tmpfs", "mount.zfs", "nfsd", "quotas", "raw_sockets", "read_msgbuf",
	"reserved_ports", "routing", "set_hostname", "setaudit", "settime", "socket_af", "suser", "sysvipc",
	"unprivileged_parent_tampering", "unprivileged_proc_debug",
}

// alwaysAllowed are those that ocijail sets of its own accord.
var alwaysAllowed = []string{"chflags", "raw_sockets"}

// CheckParams tells whether a container's labels below satl.jail. are jail
// parameters that can be set, with values that can be had. The keys are
// without that prefix.
func CheckParams(params map[string]string) error {
	_, err := paramAnnotations(params)
	return err
}

// paramAnnotations are the bundle's annotations for a container's parameters.
func paramAnnotations(params map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(params))
	for _, param := range slices.Sorted(maps.Keys(params)) {
		value := params[param]
		bad := func(why string) error {
			return invalid("label %s%s=%s: %s", paramLabel, param, value, why)
		}
		allow, isAllow := strings.CutPrefix(param, "allow.")
		switch {
		case isAllow && slices.Contains(allowParams, allow):
			switch value {
			case "true", "1":
				out["org.freebsd.jail."+param] = "true"
			case "false", "0":
				if slices.Contains(alwaysAllowed, allow) {
					return nil, bad("ocijail gives it to every jail")
				}
			default:
				return nil, bad("it is true or false")
			}
		case param == "sysvmsg" || param == "sysvsem" || param == "sysvshm":
			if value != "new" && value != "inherit" && value != "disable" {
				return nil, bad("it is new, inherit or disable")
			}
			out["org.freebsd.jail."+param] = value
		default:
			return nil, bad("no such jail parameter can be set: there are sysvmsg, sysvsem, sysvshm (new, inherit, disable) and allow." +
				strings.Join(allowParams, ", allow.") + " (true, false)")
		}
	}
	return out, nil
}
