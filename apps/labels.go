// SPDX-License-Identifier: BSD-2-Clause

package apps

import (
	"fmt"
	"strings"
)

// The labels of an application. They stand on its containers (in a compose
// file: `labels:` of a service) or on its services (`deploy: labels:`).
const (
	LabelPrefix = "satl.app."
	// LabelHealth opts in: "true".
	LabelHealth = LabelPrefix + "health"
	// LabelFile opts in, and names the status file by which the application
	// answers for itself, as the container sees it.
	LabelFile = LabelPrefix + "health.file"
)

// Which application a container belongs to.
const (
	labelProject   = "com.docker.compose.project"
	labelNamespace = "com.docker.stack.namespace"
)

// CheckLabel says what is wrong with a label of this package, "" where nothing
// is; labels of others are none of its business.
func CheckLabel(name, value string) (problem string) {
	switch {
	case !strings.HasPrefix(name, LabelPrefix):
		return ""
	case name == LabelHealth && value != "true" && value != "false":
		return fmt.Sprintf("must be true or false, not %q", value)
	case name == LabelFile && (!strings.HasPrefix(value, "/") || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' })):
		return fmt.Sprintf("must start with / and cannot contain spaces, or what is not printable ASCII, not %q", value)
	case name != LabelHealth && name != LabelFile:
		return "is unknown"
	}
	return ""
}

// names are the applications that labels tell of: none, one, or one by each
// of Docker's two labels.
func names(labels map[string]string) (all []string) {
	for _, label := range []string{labelProject, labelNamespace} {
		if name := labels[label]; name != "" && (len(all) == 0 || all[0] != name) {
			all = append(all, name)
		}
	}
	return all
}

// optsIn tells whether labels ask for the verdict to gate.
func optsIn(labels map[string]string) bool {
	return labels[LabelHealth] == "true" || labels[LabelFile] != ""
}
