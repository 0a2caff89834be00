// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"reflect"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestChanges(t *testing.T) {
	set := func(keys ...string) map[string]struct{} {
		m := map[string]struct{}{}
		for _, k := range keys {
			m[k] = struct{}{}
		}
		return m
	}
	for _, c := range []struct {
		changes []string
		want    v1.Config
	}{
		{[]string{`CMD ["/bin/sleep", "1000"]`}, v1.Config{Cmd: []string{"/bin/sleep", "1000"}}},
		{[]string{`cmd []`}, v1.Config{Cmd: []string{}}},
		{[]string{`CMD echo "a  b" $HOME`}, v1.Config{Cmd: []string{"/bin/sh", "-c", `echo "a  b" $HOME`}}},
		{[]string{`ENTRYPOINT ["/init"]`, `CMD ["x"]`}, v1.Config{Entrypoint: []string{"/init"}, Cmd: []string{"x"}}},
		{[]string{`ENV A=1 B="two words" C='$A' D=${A}x E=\$A F=${Z:-none} G=${A:+set}`},
			v1.Config{Env: []string{"A=1", "B=two words", "C=$A", "D=x", "E=$A", "F=none", "G="}}},
		{[]string{"ENV A=1", "ENV B=$A-${A:+set} A=2", "ENV C=$A"}, v1.Config{Env: []string{"A=2", "B=1-set", "C=2"}}},
		{[]string{"ENV PATH /bin:/usr/bin and more"}, v1.Config{Env: []string{"PATH=/bin:/usr/bin and more"}}},
		{[]string{"ENV A="}, v1.Config{Env: []string{"A="}}},
		{[]string{`LABEL a=b "c d"="e f"`}, v1.Config{Labels: map[string]string{"a": "b", "c d": "e f"}}},
		{[]string{"EXPOSE 80 53/udp 8000-8002/TCP"}, v1.Config{ExposedPorts: set("80/tcp", "53/udp", "8000/tcp", "8001/tcp", "8002/tcp")}},
		{[]string{`VOLUME /data /a/../b`, `VOLUME ["/c d"]`}, v1.Config{Volumes: set("/data", "/b", "/c d")}},
		{[]string{"USER 1000:1000", "STOPSIGNAL SIGQUIT"}, v1.Config{User: "1000:1000", StopSignal: "SIGQUIT"}},
		{[]string{"WORKDIR /srv", "WORKDIR www"}, v1.Config{WorkingDir: "/srv/www"}},
		{[]string{"# a comment\n\nUSER \\\nme\nWORKDIR /x"}, v1.Config{User: "me", WorkingDir: "/x"}},
		{nil, v1.Config{}},
	} {
		var got v1.Config
		if err := applyChanges(&got, c.changes); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v %v\nwant %+v", c.changes, got, err, c.want)
		}
	}
	for _, bad := range []string{
		"RUN rm -rf /", "HEALTHCHECK NONE", "ONBUILD USER x", "FROM scratch", "CMDX a", "CMD", "ENV", "LABEL ",
		"CMD ['/bin/sh']", `CMD ["a", 1]`, `CMD ["a", null]`, `CMD ["a"`, "CMD [\"a\\u0000b\"]",
		"ENV A", "ENV =x", "ENV A=1 B", `ENV A="open`, `ENV A='open`, `ENV A=x\`, "ENV A=${B", "ENV A=${}", "ENV A=${B?x}",
		"LABEL a", "EXPOSE", "EXPOSE x", "EXPOSE 0", "EXPOSE 65536", "EXPOSE 80/icmp", "EXPOSE 90-80", "EXPOSE -1", "EXPOSE $NOTHING",
		"STOPSIGNAL SIGNOPE", "STOPSIGNAL 0", "STOPSIGNAL 9 10", "USER a b", `USER ""`, "WORKDIR a b", "VOLUME data", `VOLUME ["data"]`,
	} {
		if err := applyChanges(&v1.Config{}, []string{bad}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, want it refused", bad, err)
		}
	}
}

// FuzzChanges: no text makes it fail otherwise than by refusing, and what it
// accepts has no NUL, which no exec could take.
func FuzzChanges(f *testing.F) {
	for _, s := range []string{`CMD ["a"]`, "ENV A=$B ${C:-d}", "EXPOSE 1-9", `LABEL "a"='b'`, "WORKDIR ../..", "VOLUME [\"/x\"]", "ENV a b\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var c v1.Config
		if err := applyChanges(&c, []string{s}); err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%q: %v has no class", s, err)
			}
			return
		}
		if c.WorkingDir != "" && c.WorkingDir[0] != '/' {
			t.Errorf("%q: working directory %q", s, c.WorkingDir)
		}
		for _, e := range c.Env {
			if e == "" || e[0] == '=' {
				t.Errorf("%q: environment %q", s, c.Env)
			}
		}
	})
}
