// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/healthcheck"
)

// minimal is a spec that is admitted, with %s for more of its container.
const minimal = `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`

func specOf(t *testing.T, text string) *swarm.ServiceSpec {
	t.Helper()
	var spec swarm.ServiceSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &spec
}

// inContainer is the minimal spec with more in its ContainerSpec.
func inContainer(more string) string {
	return `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1",` + more + `}}}`
}

func inTask(more string) string {
	return `{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"},` + more + `}}`
}

func inService(more string) string {
	return `{"Name":"web",` + more + `,"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`
}

func TestAdmitRefuses(t *testing.T) {
	for _, c := range []struct {
		spec   string
		status int
		says   string
	}{
		{`{"Name":"web","TaskTemplate":{}}`, 400, "ContainerSpec is missing"},
		{`{"Name":"we b","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`, 400, "DNS name component"},
		{`{"Name":"-web","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`, 400, "DNS name component"},
		{`{"Name":"` + strings.Repeat("w", 64) + `","TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`, 400, "63 characters"},
		{`{"Name":"web","TaskTemplate":{"ContainerSpec":{}}}`, 400, "image reference must be provided"},
		{`{"Name":"web","TaskTemplate":{"ContainerSpec":{"Image":"UPPER:1"}}}`, 400, "is not a valid repository/tag"},
		{inTask(`"Runtime":"plugin"`), 501, "plugins are not supported"},
		{inTask(`"PluginSpec":{}`), 501, "plugins are not supported"},
		{inTask(`"Runtime":"attachment"`), 400, `"attachment" not supported`},
		{inTask(`"NetworkAttachmentSpec":{}`), 400, `"attachment" not supported`},
		{inTask(`"Runtime":"vm"`), 400, `unsupported runtime type: "vm"`},
		{inContainer(`"Secrets":[{"SecretName":"x"}]`), 400, "malformed secret reference, no target provided"},
		{inContainer(`"Secrets":[null]`), 400, "malformed secret reference"},
		{inContainer(`"Secrets":[{"SecretName":"x","File":{}}]`), 400, "malformed file secret reference"},
		{inContainer(`"Secrets":[{"SecretName":"x","File":{"Name":"/"}}]`), 400, "malformed file secret reference"},
		{inContainer(`"Secrets":[{"SecretName":"x","File":{"Name":"x","UID":"root"}}]`), 400, "invalid owner of secret 'x'"},
		{inContainer(`"Secrets":[{"SecretName":"x","File":{"Name":"a"}},{"SecretName":"y","File":{"Name":"/run/secrets/a"}}]`), 400,
			"secret references 'x' and 'y' have a conflicting target: '/run/secrets/a'"},
		{inContainer(`"Configs":[null]`), 400, "malformed config reference"},
		{inContainer(`"Configs":[{"ConfigName":"x"}]`), 400, "malformed config reference, no target provided"},
		{inContainer(`"Configs":[{"ConfigName":"x","File":{"Name":"../.."}}]`), 400, "malformed file config reference"},
		{inContainer(`"Configs":[{"ConfigName":"x","Runtime":{}}]`), 501, "credential specs"},
		{inContainer(`"Configs":[{"ConfigName":"x","File":{"Name":"x","GID":"-1"}}]`), 400, "invalid owner of config 'x'"},
		{inContainer(`"Secrets":[{"SecretName":"s","File":{"Name":"/x"}}],"Configs":[{"ConfigName":"c","File":{"Name":"x"}}]`), 400,
			"config references 's' and 'c' have a conflicting target: '/x'"},
		{inContainer(`"Privileges":{"CredentialSpec":{"File":"x"}}`), 501, "credential specs"},
		{inContainer(`"Privileges":{"SELinuxContext":{"Disable":true}}`), 501, "SELinux"},
		{inContainer(`"Privileges":{"Seccomp":{"Mode":"unconfined"}}`), 501, "seccomp"},
		{inContainer(`"Privileges":{"Seccomp":{"Mode":"custom","Profile":"e30="}}`), 501, "seccomp"},
		{inContainer(`"Privileges":{"AppArmor":{"Mode":"disabled"}}`), 501, "AppArmor"},
		{inContainer(`"Isolation":"hyperv"`), 501, "isolation"},
		{inContainer(`"StopGracePeriod":-1`), 400, "StopGracePeriod"},
		{inContainer(`"StopSignal":"SIGNOTHING"`), 400, "StopSignal"},
		{inContainer(`"OomScoreAdj":1001`), 400, "OomScoreAdj"},
		{inContainer(`"Env":["=x"]`), 400, "environment variable"},
		{inContainer(`"Ulimits":[null]`), 400, "Ulimits"},
		{inContainer(`"Ulimits":[{"Name":"nonsense","Soft":1,"Hard":1}]`), 400, "ulimit"},
		{inContainer(`"Hosts":["10.0.0.1"]`), 400, "extra host"},
		{inContainer(`"Hosts":["nohost name"]`), 400, "extra host"},
		{inContainer(`"DNSConfig":{"Nameservers":["x"]}`), 400, "name server"},
		{inContainer(`"Mounts":[{"Type":"volume","Source":"v","Target":"/v"}]`), 501, "volumes are not supported: mount a directory of the host"},
		{inContainer(`"Mounts":[{"Source":"v","Target":"/v"}]`), 501, "volumes"},
		{inContainer(`"Mounts":[{"Type":"npipe","Source":"v","Target":"/v"}]`), 501, "npipe"},
		{inContainer(`"Mounts":[{"Type":"cluster","Source":"v","Target":"/v"}]`), 501, "cluster"},
		{inContainer(`"Mounts":[{"Type":"image","Source":"v","Target":"/v"}]`), 501, "image"},
		{inContainer(`"Mounts":[{"Type":"nonsense","Source":"v","Target":"/v"}]`), 400, "mount type"},
		{inContainer(`"Mounts":[{"Type":"bind","Source":"rel","Target":"/v"}]`), 400, "absolute"},
		{inContainer(`"Mounts":[{"Type":"bind","Source":"/x","Target":"v"}]`), 400, "absolute"},
		{inContainer(`"Mounts":[{"Type":"bind","Source":"/x","Target":"/"}]`), 400, "absolute"},
		{inContainer(`"Mounts":[{"Type":"bind","Source":"/x","Target":"/v","VolumeOptions":{}}]`), 400, "options of another type"},
		{inContainer(`"Mounts":[{"Type":"bind","Source":"/x","Target":"/v","BindOptions":{"CreateMountpoint":true}}]`), 501, "create their source"},
		{inContainer(`"Mounts":[{"Type":"bind","Source":"/x","Target":"/v","BindOptions":{"ReadOnlyForceRecursive":true}}]`), 501, "recursive"},
		{inContainer(`"Mounts":[{"Type":"tmpfs","Source":"/x","Target":"/v"}]`), 400, "source"},
		{inContainer(`"Mounts":[{"Type":"tmpfs","Target":"/v","TmpfsOptions":{"SizeBytes":-1}}]`), 400, "negative"},
		{inContainer(`"Mounts":[{"Type":"tmpfs","Target":"/v","TmpfsOptions":{"Options":[["noexec"]]}}]`), 501, "tmpfs"},
		{inTask(`"Resources":{"Limits":{"NanoCPUs":-1}}`), 400, "limits"},
		{inTask(`"Resources":{"Reservations":{"MemoryBytes":-1}}`), 400, "reservations"},
		{inTask(`"Resources":{"Reservations":{"GenericResources":[{"DiscreteResourceSpec":{"Kind":"gpu","Value":1}}]}}`), 501, "generic resources"},
		{inTask(`"Resources":{"Reservations":{"GenericResources":[{}]}}`), 501, "generic resources"},
		{inTask(`"RestartPolicy":{"Delay":-1}`), 400, "Delay"},
		{inTask(`"RestartPolicy":{"Window":-1}`), 400, "Window"},
		{inTask(`"Placement":{"Constraints":["node.role"]}`), 400, "constraint"},
		{inTask(`"LogDriver":{"Name":"syslog"}`), 501, `log driver "syslog"`},
		{inTask(`"LogDriver":{"Name":"json-file","Options":{"tag":"x"}}`), 501, `log option "tag"`},
		{inTask(`"LogDriver":{"Options":{"max-size":"lots"}}`), 400, "max-size"},
		{inTask(`"LogDriver":{"Options":{"max-file":"0"}}`), 400, "max-file"},
		{inService(`"EndpointSpec":{"Mode":"anycast"}`), 400, "resolution mode"},
		{inService(`"Mode":{"Replicated":{"Replicas":100001}}`), 400, "100000 tasks"},
		{inService(`"Mode":{"ReplicatedJob":{"MaxConcurrent":4000000000,"TotalCompletions":4000000000}}`), 400, "100000 tasks"},
		{inService(`"EndpointSpec":{"Ports":[{"Protocol":"icmp","TargetPort":80}]}`), 400, "protocol"},
		{inService(`"EndpointSpec":{"Ports":[{"PublishMode":"mesh","TargetPort":80}]}`), 400, "publish mode"},
		{inService(`"EndpointSpec":{"Ports":[{"PublishedPort":8080}]}`), 400, "target port 0"},
		{inService(`"EndpointSpec":{"Ports":[{"TargetPort":65536}]}`), 400, "target port 65536"},
		{inService(`"EndpointSpec":{"Ports":[{"TargetPort":80,"PublishedPort":70000}]}`), 400, "published port 70000"},
		// cases/verdict.md, verdict-7
		{inContainer(`"Healthcheck":{"Test":["CMD","x"],"Interval":500000}`), 400, "Interval must be 0 or >= 1ms"},
		{inContainer(`"Healthcheck":{"Test":["CMD","x"],"Timeout":-1}`), 400, "Timeout must be 0 or >= 1ms"},
		{inContainer(`"Healthcheck":{"Test":["CMD","x"],"Retries":-1}`), 400, "Retries"},
		{inContainer(`"Healthcheck":{"Test":["CMD","x"],"StartPeriod":1}`), 400, "StartPeriod must be 0 or >= 1ms"},
		{inContainer(`"Healthcheck":{"Test":["CMD","x"],"StartInterval":1}`), 400, "StartInterval must be 0 or >= 1ms"},
		{inContainer(`"Healthcheck":{"Test":["CMD-SHELL",""]}`), 400, "empty command after CMD-SHELL"},
		{inContainer(`"Labels":{"satl.health.http":"x","satl.health.http.port":"80"}`), 400, "satl.health.http must"},
		{inContainer(`"Labels":{"satl.health.http":"/x"}`), 400, "satl.health.http.port is needed"},
		{inContainer(`"Labels":{"satl.health.http":"/x","satl.health.tcp":"80"}`), 400, "satl.health.tcp"},
		{inContainer(`"Labels":{"satl.health.http":"/x","satl.health.http.port":"80"},"Healthcheck":{"Test":["CMD","x"]}`), 400, "contradicts satl.health.http"},
		{inContainer(`"Labels":{"satl.health.profile":"strict"},"Healthcheck":{"Test":["CMD","x"]}`), 400, "satl.health.profile"},
		{inContainer(`"Labels":{"satl.health.http.header.X-A":"1"}`), 400, "satl.health.http.header.X-A needs satl.health.http"},
		{inContainer(`"Labels":{"satl.jail.":"1"}`), 400, "unknown label satl.jail."},
		{inContainer(`"Labels":{"satl.jail.exec.start":"/bin/sh"}`), 400, "satl.jail.exec.start"},
		{inContainer(`"Labels":{"satl.jail.sysvshm":"maybe"}`), 400, "it is new, inherit or disable"},
		{inService(`"Labels":{"satl.jail.allow.mlock":"true"}`), 400, "is a container label"},
		{inContainer(`"Labels":{"satl.health.http.header.":"1"}`), 400, "names no header field"},
		{inContainer(`"Labels":{"satl.health.nonsense":"1"}`), 400, "unknown label satl.health.nonsense"},
		{inContainer(`"Labels":{"satl.traffic.drain":"5s"}`), 400, "is a service label"},
		{inService(`"Labels":{"satl.health.http":"/x"}`), 400, "is a container label"},
		{inService(`"Labels":{"satl.traffic.drain":"5"}`), 400, "satl.traffic.drain must be a duration from 0s to 1h0m0s"},
		{inService(`"Labels":{"satl.traffic.drain":"-1s"}`), 400, "must be a duration"},
		{inService(`"Labels":{"satl.traffic.drain":"61m"}`), 400, "must be a duration"},
		{inService(`"Labels":{"satl.traffic.drain":""}`), 400, "must be a duration"},
		{inService(`"Labels":{"satl.traffic.fail-open":"1"}`), 400, "satl.traffic.fail-open must be true or false"},
		{inService(`"Labels":{"satl.traffic.nonsense":"1"}`), 400, "unknown label"},
		{inService(`"Labels":{"satl.health.replace-parallelism":"0"}`), 400, "must be a whole number from 1"},
		{inService(`"Labels":{"satl.health.replace-parallelism":"+1"}`), 400, "must be a whole number from 1"},
		{inService(`"Labels":{"satl.health.replace-parallelism":"1.5"}`), 400, "must be a whole number from 1"},
		{inContainer(`"Labels":{"satl.health.replace-parallelism":"1"}`), 400, "is a service label"},
		{inService(`"Labels":{"satl.dns.not-ready":"yes"}`), 400, "must be true or false"},
		{inService(`"Labels":{"satl.dns.nonsense":"1"}`), 400, "unknown label"},
		{inService(`"Labels":{"satl.app.health":"yes"}`), 400, `label satl.app.health must be true or false, not "yes"`},
		{inService(`"Labels":{"satl.app.nonsense":"1"}`), 400, "label satl.app.nonsense is unknown"},
		{inContainer(`"Labels":{"satl.app.health.file":"health"}`), 400, "label satl.app.health.file must start with /"},
	} {
		_, err := admit(specOf(t, c.spec))
		if err == nil {
			t.Errorf("%s: admitted, want %d %q", c.spec, c.status, c.says)
		} else if statusOf(err) != c.status || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %d %q, want %d %q", c.spec, statusOf(err), err, c.status, c.says)
		}
	}
}

func TestAdmitAccepts(t *testing.T) {
	for _, text := range []string{
		minimal,
		`{"TaskTemplate":{"ContainerSpec":{"Image":"bb:1"}}}`,
		inContainer(`"Privileges":{"CredentialSpec":null,"SELinuxContext":null,"NoNewPrivileges":true}`),
		inContainer(`"Privileges":{"Seccomp":{"Mode":"default"},"AppArmor":{"Mode":"default"}}`),
		inContainer(`"Isolation":"default","Init":false,"TTY":true,"OpenStdin":true,"ReadOnly":true,"StopSignal":"SIGQUIT","StopGracePeriod":1000000000`),
		inContainer(`"Env":["A=1","B","C="],"Hosts":["10.0.0.1 a b"],"DNSConfig":{"Nameservers":["10.0.0.53"],"Search":["x"],"Options":["ndots:1"]}`),
		inContainer(`"CapabilityAdd":["CAP_NET_ADMIN"],"CapabilityDrop":["ALL"],"Sysctls":{"net.core.somaxconn":"1024"},"Ulimits":[{"Name":"nofile","Soft":1,"Hard":2}],"OomScoreAdj":100`),
		inContainer(`"Mounts":[{"Type":"bind","Source":"/x","Target":"/v","ReadOnly":true,"BindOptions":{"Propagation":"rprivate"}},{"Type":"tmpfs","Target":"/t","TmpfsOptions":{"SizeBytes":1024,"Mode":511}}]`),
		inContainer(`"Labels":{"com.example.x":"1","satl.other":"x"}`),
		inContainer(`"Healthcheck":{"Test":["NONE"]}`),
		inContainer(`"Labels":{"satl.health.http":"/x","satl.health.http.port":"80","satl.health.http.header.X-A":"1","satl.health.http.pass":"200-399"}`),
		inContainer(`"Labels":{"satl.health.tcp":"80","satl.health.profile":"automatic"}`),
		inContainer(`"Labels":{"satl.health.file":"/run/health","satl.health.action":"unroute"}`),
		inContainer(`"Labels":{"satl.health.profile":"gate","satl.health.http":"/x","satl.health.http.port":"80"}`),
		inContainer(`"Healthcheck":{"Test":["CMD","x"],"StartInterval":1000000000}`), // verdict-1: StartPeriod is not needed
		inTask(`"Resources":{"Limits":{"NanoCPUs":1000000000,"MemoryBytes":67108864,"Pids":100},"Reservations":{"MemoryBytes":67108864}}`),
		inTask(`"Placement":{"Constraints":["node.role==manager"],"Platforms":[{"OS":"linux","Architecture":"amd64"}]}`),
		inTask(`"LogDriver":{"Name":"json-file","Options":{"max-size":"10m","max-file":"3"}}`),
		inTask(`"LogDriver":{"Name":"none"}`),
		inService(`"Mode":{"ReplicatedJob":{"MaxConcurrent":1,"TotalCompletions":2}}`),
		inService(`"Mode":{"GlobalJob":{}}`),
		inService(`"Mode":{"Replicated":{"Replicas":100000}}`),
		inService(`"EndpointSpec":{"Mode":"vip"}`),
		inService(`"EndpointSpec":{"Mode":"dnsrr"}`),
		inService(`"Labels":{"satl.dns.not-ready":"true"}`),
		inService(`"Labels":{"satl.traffic.drain":"5s","satl.traffic.fail-open":"true","satl.health.replace-parallelism":"2"}`),
		inService(`"Labels":{"satl.traffic.drain":"0"}`),
		inService(`"Labels":{"satl.app.health":"true"}`),
		inContainer(`"Labels":{"satl.app.health.file":"/run/health","satl.app.health":"true"}`),
		inService(`"Labels":{"satl.traffic.drain":"1h"}`),
	} {
		if a, err := admit(specOf(t, text)); err != nil || len(a.warnings) > 0 {
			t.Errorf("%s: %v, warnings %q", text, err, a.warnings)
		}
	}
}

// TestAdmitPublished is spec/healthchecks.txt, "Publishing a port tightens the
// defaults": field by field, and only where a field is unset.
func TestAdmitPublished(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name, health, ports string
		interval, timeout   time.Duration
		retries             int
		applied, published  string
		warning             string
	}{
		{"all unset", `{"Test":["CMD","x"]}`, `[{"Protocol":"tcp","TargetPort":80,"PublishedPort":8080}]`,
			5 * s, 3 * s, 2, "interval=5s timeout=3s retries=2", "8080->80/tcp", ""},
		{"interval given", `{"Test":["CMD","x"],"Interval":10000000000}`, `[{"TargetPort":80,"PublishedPort":8080}]`,
			10 * s, 10 * s, 2, "timeout=10s retries=2", "8080->80/tcp", ""},
		{"docker's asked for", `{"Test":["CMD","x"],"Interval":30000000000,"Timeout":30000000000,"Retries":3}`, `[{"TargetPort":80,"PublishedPort":8080}]`,
			30 * s, 30 * s, 3, "", "8080->80/tcp", ""},
		{"port to be chosen", `{"Test":["CMD-SHELL","x"],"Retries":4}`, `[{"Protocol":"udp","TargetPort":53},{"TargetPort":80,"PublishedPort":8080}]`,
			5 * s, 3 * s, 4, "interval=5s timeout=3s", "*->53/udp,8080->80/tcp", ""},
		{"no port", `{"Test":["CMD","x"]}`, `[]`, 0, 0, 0, "", "", ""},
		{"no probe", `null`, `[{"TargetPort":80,"PublishedPort":8080}]`, 0, 0, 0, "", "8080->80/tcp",
			"service web publishes 8080->80/tcp and has no healthcheck: its tasks are published as soon as the jail starts, before the workload can answer, and stay published while a dead container keeps its share of the traffic"},
		{"inherit", `{"Test":[""]}`, `[{"TargetPort":80,"PublishedPort":8080}]`, 0, 0, 0, "", "8080->80/tcp",
			"service web publishes 8080->80/tcp and has no healthcheck: its tasks are published as soon as the jail starts, before the workload can answer, and stay published while a dead container keeps its share of the traffic"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := specOf(t, `{"Name":"web","EndpointSpec":{"Ports":`+c.ports+`},"TaskTemplate":{"ContainerSpec":{"Image":"bb:1","Healthcheck":`+c.health+`}}}`)
			a, err := admit(spec)
			if err != nil {
				t.Fatal(err)
			}
			if a.applied != c.applied || a.published != c.published {
				t.Errorf("applied %q published %q, want %q %q", a.applied, a.published, c.applied, c.published)
			}
			if got := strings.Join(a.warnings, "|"); got != c.warning {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
			if h := spec.TaskTemplate.ContainerSpec.Healthcheck; h != nil && c.warning == "" &&
				(h.Interval != c.interval || h.Timeout != c.timeout || h.Retries != c.retries || h.StartPeriod != 0) {
				t.Errorf("stored %+v", h)
			}
		})
	}
}

func TestAdmitUnknownProbeKind(t *testing.T) {
	a, err := admit(specOf(t, inContainer(`"Healthcheck":{"Test":["FOO","x"]}`)))
	if err != nil || len(a.warnings) != 1 || !strings.Contains(a.warnings[0], "FOO") {
		t.Errorf("%v, warnings %q", err, a.warnings)
	}
}

// TestAdmitProbesOfLabels: a probe that labels name is tightened where the
// service publishes a port, asks the port that is published, and is the reason
// for no warning; one whose profile has its own timings is left alone.
func TestAdmitProbesOfLabels(t *testing.T) {
	const ports = `,"EndpointSpec":{"Ports":[{"Protocol":"tcp","TargetPort":8080,"PublishedPort":80}]}`
	for _, c := range []struct {
		labels, applied string
		interval        time.Duration
	}{
		{`"satl.health.http":"/up"`, "interval=5s timeout=3s retries=2", 5 * time.Second},
		{`"satl.health.http":"/up","satl.health.profile":"automatic"`, "", 0},
		{`"satl.health.http":"/up","satl.health.unroute-after":"4"`, "interval=5s timeout=3s", 5 * time.Second},
	} {
		spec := specOf(t, strings.TrimSuffix(inContainer(`"Labels":{`+c.labels+`}`), "}")+ports+"}")
		a, err := admit(spec)
		if err != nil || len(a.warnings) > 0 || a.applied != c.applied {
			t.Errorf("%s: %v, warnings %q, applied %q", c.labels, err, a.warnings, a.applied)
			continue
		}
		if h := spec.TaskTemplate.ContainerSpec.Healthcheck; (h != nil) != (c.interval > 0) || h != nil && h.Interval != c.interval {
			t.Errorf("%s: stored %+v", c.labels, h)
		}
		probe, err := effectiveProbe(spec)
		if err != nil || probe.Kind != healthcheck.HTTP || probe.Port != 8080 {
			t.Errorf("%s: %+v, %v", c.labels, probe, err)
		}
	}
}

// TestAdmitJail: parameters of jails are for the system that has jails.
func TestAdmitJail(t *testing.T) {
	for _, c := range []struct {
		labels         map[string]string
		linux, freebsd int // status; 0 is admitted
	}{
		{map[string]string{"satl.jail.allow.mlock": "true", "satl.jail.sysvshm": "new", "other": "x"}, 501, 0},
		{map[string]string{"satl.jail.allow.nonsense": "true"}, 400, 400},
		{map[string]string{"other": "x"}, 0, 0},
	} {
		for system, status := range map[string]int{"linux": c.linux, "freebsd": c.freebsd} {
			err := admitJail(c.labels, system)
			if (err == nil) != (status == 0) || err != nil && statusOf(err) != status {
				t.Errorf("%v on %s: %v, want %d", c.labels, system, err, status)
			}
		}
	}
}
