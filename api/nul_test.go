// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"strings"
	"testing"
)

// A NUL is refused wherever it would end a text early, by the name of the
// field, and changes nothing; contents may hold any.
func TestNULIsRefused(t *testing.T) {
	f := newFixture(t)
	id, _ := f.create(t, webSpec("1"))
	const spec = `{"Name":"n","TaskTemplate":{"ContainerSpec":{"Image":"i"%s}}}`
	for _, c := range []struct{ in, field string }{
		{fmt.Sprintf(spec, `,"Healthcheck":{"Test":["CMD","/bin/true","a\u0000b"]}`), `TaskTemplate.ContainerSpec.Healthcheck.Test[2]`},
		{fmt.Sprintf(spec, `,"Command":["/bin/sh\u0000"]`), `TaskTemplate.ContainerSpec.Command[0]`},
		{fmt.Sprintf(spec, `,"Args":["a","\u0000"]`), `TaskTemplate.ContainerSpec.Args[1]`},
		{fmt.Sprintf(spec, `,"Env":["A=b\u0000c"]`), `TaskTemplate.ContainerSpec.Env[0]`},
		{fmt.Sprintf(spec, `,"Labels":{"a":"b","c":"d\u0000"}`), `TaskTemplate.ContainerSpec.Labels["c"]`},
		{fmt.Sprintf(spec, `,"Labels":{"a\u0000":"b"}`), `TaskTemplate.ContainerSpec.Labels["a\x00"]`},
		{fmt.Sprintf(spec, `,"User":"root\u0000"`), `TaskTemplate.ContainerSpec.User`},
		{fmt.Sprintf(spec, `,"Dir":"/\u0000"`), `TaskTemplate.ContainerSpec.Dir`},
		{fmt.Sprintf(spec, `,"Hostname":"h\u0000"`), `TaskTemplate.ContainerSpec.Hostname`},
		{fmt.Sprintf(spec, `,"Hosts":["10.0.0.1 h\u0000"]`), `TaskTemplate.ContainerSpec.Hosts[0]`},
		{fmt.Sprintf(spec, `,"Mounts":[{"Type":"bind","Source":"/a\u0000","Target":"/b"}]`), `TaskTemplate.ContainerSpec.Mounts[0].Source`},
		{`{"Name":"n","Labels":{"a":"\u0000"},"TaskTemplate":{"ContainerSpec":{"Image":"i"}}}`, `Labels["a"]`},
	} {
		want := "invalid " + c.field + ": it holds a NUL byte"
		f.refused(t, 400, want, "POST", "/services/create", c.in)
		f.refused(t, 400, want, "POST", "/services/"+id+"/update?version=1", strings.Replace(c.in, `"n"`, `"web"`, 1))
	}
	for _, c := range []struct{ path, in, field string }{
		{"/containers/create", `{"Image":"i","Cmd":["a\u0000"]}`, "Cmd[0]"},
		{"/containers/create", `{"Image":"i","WorkingDir":"/\u0000"}`, "WorkingDir"},
		{"/containers/create", `{"Image":"i","HostConfig":{"Binds":["/a:/b\u0000"]}}`, "HostConfig.Binds[0]"},
		{"/networks/create", `{"Name":"n","Labels":{"a":"\u0000"}}`, `Labels["a"]`},
		{"/secrets/create", `{"Name":"n","Labels":{"a":"\u0000"},"Data":"AAA="}`, `Labels["a"]`},
	} {
		f.refused(t, 400, "invalid "+c.field+": it holds a NUL byte", "POST", c.path, c.in)
	}
	f.must(t, 201, "POST", "/configs/create", `{"Name":"n","Data":"AAAA"}`) // three of them
	if got := f.must(t, 200, "GET", "/services", ""); strings.Count(got, `"ID"`) != 1 {
		t.Errorf("something was made: %s", got)
	}
}
