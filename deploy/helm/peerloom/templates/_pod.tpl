{{/*
The pod of a service, by a dict: root, service (registry, selector, trainer, node), name (of its set), port, labels,
resources, settings, storage, readiness (a name in gRPC's health; "": all), and for agents pool.
*/}}
{{- define "peerloom.pod" -}}
{{- $root := .root -}}
{{- $prefix := printf "PEERLOOM_%s_" (upper .service) -}}
{{- $door := $root.Values.door.enabled -}}
metadata:
  labels:
    {{- include "peerloom.selector" $root | nindent 4 }}
    {{- .labels | nindent 4 }}
spec:
  # Services' names would become variables such as PEERLOOM_REGISTRY_PORT, which settings are read from.
  enableServiceLinks: false
  automountServiceAccountToken: false
  # Something else is process 1, which takes orphans in: what a worker left, and signals from the first moment on.
  shareProcessNamespace: true
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch  # keys are for their user alone
    seccompProfile: {type: RuntimeDefault}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .pool }}
  priorityClassName: {{ include "peerloom.priorityClass" $root }}
  terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
  {{- with .runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with .nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- else }}
  terminationGracePeriodSeconds: 20
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "peerloom.selector" $root | nindent 10 }}
          {{- .labels | nindent 10 }}
  {{- end }}
  containers:
    - name: {{ .service }}
      image: {{ $root.Values.image.repository }}-{{ .service }}:{{ $root.Values.image.tag }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      ports:
        - {name: grpc, containerPort: {{ .port }}}
        {{- if and $door (eq .service "registry") }}
        - {name: join, containerPort: 7399}
        {{- end }}
        {{- if $root.Values.metrics.enabled }}
        - {name: metrics, containerPort: 9400}
        {{- end }}
      env:
        {{- include "peerloom.env" . | nindent 8 }}
      {{- if and $root.Values.objectStore.secret (eq .service "trainer") }}
      envFrom:
        - secretRef: {name: {{ $root.Values.objectStore.secret }}}
      {{- end }}
      # A standby is alive, and so is a service that waits for its database or for the registry.
      startupProbe:
        {{- include "peerloom.probe" (list $door .port "live") | nindent 8 }}
        periodSeconds: 2
        failureThreshold: 150
      livenessProbe:
        {{- include "peerloom.probe" (list $door .port "live") | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        {{- include "peerloom.probe" (list $door .port .readiness) | nindent 8 }}
        periodSeconds: 5
        timeoutSeconds: 5
      resources:
        {{- toYaml .resources | nindent 8 }}
      volumeMounts:
        - {name: state, mountPath: /var/lib/peerloom}
        - {name: tmp, mountPath: /tmp}
        {{- if .pool }}
        - {name: shared-memory, mountPath: /dev/shm}
        {{- end }}
        {{- if and $door (ne .service "registry") }}
        - {name: tokens, mountPath: /run/peerloom/tokens, readOnly: true}
        {{- end }}
  volumes:
    - {name: tmp, emptyDir: {sizeLimit: 256Mi}}
    {{- if not .storage.size }}
    - {name: state, emptyDir: {}}
    {{- end }}
    {{- with .pool }}
    - {name: shared-memory, emptyDir: {medium: Memory, sizeLimit: {{ .sharedMemory }}}}
    {{- end }}
    {{- if and $door (ne .service "registry") }}
    # A token for each pod, under its name; needed until it has joined.
    - {name: tokens, secret: {secretName: {{ $root.Release.Name }}-join-{{ trimPrefix (printf "%s-" $root.Release.Name) .name }}, optional: true, defaultMode: 0440}}
    {{- end }}
{{- end }}

{{/* How a service is asked for its health, by (list DOOR PORT NAME). A kubelet asks without certificate. */}}
{{- define "peerloom.probe" -}}
{{- if index . 0 -}}
exec:
  command: {{ list "python" "-IS" "/opt/peerloom/code/probe.py" (index . 1 | toString) "/tmp/identity.pem" (index . 2) | toJson }}
{{- else -}}
grpc: {port: {{ index . 1 }}, service: {{ index . 2 | quote }}}
{{- end -}}
{{- end }}

{{/* All that a service is told; a variable for each setting (docs/reference/configuration.md). */}}
{{- define "peerloom.env" -}}
{{- $root := .root -}}
{{- $prefix := printf "PEERLOOM_%s_" (upper .service) -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: {{ $prefix }}LISTEN, value: "0.0.0.0:{{ .port }}"}
- {name: {{ $prefix }}STATE, value: /var/lib/peerloom/state}
{{- if eq .service "registry" }}
# For `kubectl exec`: the command finds the system, and with a door is its operator.
- {name: PEERLOOM_ADDRESS, value: {{ include "peerloom.registryAddresses" $root | quote }}}
{{- else }}
- {name: {{ $prefix }}REGISTRY, value: {{ include "peerloom.registryAddresses" $root | quote }}}
- {name: {{ $prefix }}ADVERTISE, value: "$(POD_IP):{{ .port }}"}
{{- end }}
{{- if not $root.Values.door.enabled }}
- {name: {{ $prefix }}ALLOW_PLAIN, value: "true"}
{{- else if eq .service "registry" }}
- {name: {{ $prefix }}JOIN_LISTEN, value: "0.0.0.0:7399"}
- {name: PEERLOOM_IDENTITY, value: /var/lib/peerloom/state/operator.pem}
{{- else }}
- {name: TOKENS, value: /run/peerloom/tokens}
{{- end }}
{{- if and (include "peerloom.hasDatabase" $root) (ne .service "node") }}
- name: {{ $prefix }}DATABASE
  valueFrom:
    secretKeyRef:
      {{- if $root.Values.database.url }}
      name: {{ $root.Release.Name }}-database
      key: url
      {{- else }}
      name: {{ $root.Values.database.secret.name }}
      key: {{ $root.Values.database.secret.key }}
      {{- end }}
{{- end }}
{{- if and $root.Values.objectStore.url (eq .service "trainer") }}
- {name: PEERLOOM_TRAINER_ARTIFACTS, value: {{ $root.Values.objectStore.url | quote }}}
{{- end }}
{{- if $root.Values.metrics.enabled }}
- {name: {{ $prefix }}METRICS, value: "0.0.0.0:9400"}
{{- end }}
{{- if .pool }}
# A name belongs to the key that lies in the state folder, so it lasts as long as that.
- name: POD
  valueFrom: {fieldRef: {fieldPath: {{ if .storage.size }}metadata.name{{ else }}metadata.uid{{ end }}}}
- {name: {{ $prefix }}NAME, value: {{ if .storage.size }}"$(POD)"{{ else }}"{{ .poolName }}-$(POD)"{{ end }}}
- name: {{ $prefix }}MEMORY_LIMIT_BYTES
  valueFrom: {resourceFieldRef: {resource: limits.memory}}
{{- if and (gt (int .pool.gpus) 0) (not (hasKey .settings "accelerator")) }}
- {name: {{ $prefix }}ACCELERATOR, value: cuda}
{{- end }}
{{- end }}
{{- range $name, $value := .settings }}
{{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}
{{- $value = int64 $value }}{{/* else 1e+09 for a billion */}}
{{- end }}
- {name: {{ $prefix }}{{ upper $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end }}
