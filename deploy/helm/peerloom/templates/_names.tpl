{{/* Labels by which everything of the release is chosen; they never change. */}}
{{- define "peerloom.selector" -}}
app.kubernetes.io/name: peerloom
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "peerloom.labels" -}}
{{ include "peerloom.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* A pool by (list . NAME): what it says itself over poolDefaults. */}}
{{- define "peerloom.pool" -}}
{{- $root := index . 0 -}}
{{- mergeOverwrite (deepCopy $root.Values.poolDefaults) (index $root.Values.pools (index . 1) | default dict) | toYaml -}}
{{- end }}

{{- define "peerloom.priorityClass" -}}
{{ .Values.priority.name | default (printf "%s-%s-nodes" .Release.Namespace .Release.Name) }}
{{- end }}

{{/* "yes" where there is a PostgreSQL, else nothing. */}}
{{- define "peerloom.hasDatabase" -}}
{{- if or .Values.database.url .Values.database.secret.name -}}yes{{- end -}}
{{- end }}

{{/* Each replica has a Service of its own, whose address stays: a list is looked up once. */}}
{{- define "peerloom.registryAddresses" -}}
{{- $replicas := int .Values.registry.replicas -}}
{{- range $n := until $replicas }}{{ $.Release.Name }}-registry-{{ $n }}:7400{{ if lt (add1 $n) $replicas }},{{ end }}{{ end -}}
{{- end }}
