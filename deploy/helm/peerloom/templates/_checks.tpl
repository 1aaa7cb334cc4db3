{{/* What no schema can say: values that don't fit together. Each names the value and what to do. */}}
{{- define "peerloom.checks" -}}
{{- if gt (len .Release.Name) 26 -}}
{{- fail (printf "The release's name %q has more than 26 characters; pods' names, which begin with it, become labels." .Release.Name) -}}
{{- end -}}
{{- $database := include "peerloom.hasDatabase" . -}}
{{- if and .Values.database.url .Values.database.secret.name -}}
{{- fail "database.url and database.secret.name are two databases: give one of them." -}}
{{- end -}}
{{- if and .Values.database.url (not (hasPrefix "postgresql+psycopg://" .Values.database.url)) -}}
{{- fail "database.url must be postgresql+psycopg://USER:PASSWORD@HOST/NAME: the images speak to no other server, and SQLite lies on a service's own volume, without database.url." -}}
{{- end -}}
{{- if and .Values.objectStore.url (not (hasPrefix "s3://" .Values.objectStore.url)) -}}
{{- fail (printf "objectStore.url is %q, but must be s3://BUCKET/PREFIX: the images speak to no other store." .Values.objectStore.url) -}}
{{- end -}}
{{- if and .Values.objectStore.secret (not .Values.objectStore.url) -}}
{{- fail "objectStore.secret is given without objectStore.url: say which bucket." -}}
{{- end -}}
{{- range $name := list "registry" "selector" "trainer" -}}
{{- $service := index $.Values $name -}}
{{- if and (gt (int $service.replicas) 1) (not $database) -}}
{{- fail (printf "%s.replicas is %d, but without database.url or database.secret.name it keeps its state in SQLite on one pod's volume, where no other pod can stand by: give a PostgreSQL, or one replica." $name (int $service.replicas)) -}}
{{- end -}}
{{- if and (gt (int $service.replicas) 1) $.Values.door.enabled -}}
{{- fail (printf "%s.replicas is %d, but door.enabled allows one: the registry's authority lies on one volume, and takeovers with a door were not tried." $name (int $service.replicas)) -}}
{{- end -}}
{{- if and (not $service.storage.size) (not $database) -}}
{{- fail (printf "%s has no database: give database.url or database.secret.name, or %s.storage.size for SQLite on a volume." $name $name) -}}
{{- end -}}
{{- if and (not $service.storage.size) $.Values.door.enabled -}}
{{- fail (printf "%s.storage.size is empty, but with door.enabled its identity has to outlive the pod: give a size." $name) -}}
{{- end -}}
{{- end -}}
{{- range $name, $given := .Values.pools -}}
{{- $pool := include "peerloom.pool" (list $ $name) | fromYaml -}}
{{- if and (eq $pool.kind "DaemonSet") $pool.kueue.queue -}}
{{- fail (printf "pools.%s.kueue.queue is %q, but Kueue queues no DaemonSet: use kind StatefulSet." $name $pool.kueue.queue) -}}
{{- end -}}
{{- if and $.Values.door.enabled (or (eq $pool.kind "DaemonSet") (not $pool.storage.size)) -}}
{{- fail (printf "pools.%s keeps no identity over its pods (kind DaemonSet, or no storage.size), but with door.enabled each needs a token, which works once: use kind StatefulSet with storage.size." $name) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.enabled: there is no port to read." -}}
{{- end -}}
{{- if not (or .Values.priority.create .Values.priority.name) -}}
{{- fail "priority.create is false, so priority.name must name the PriorityClass of the agents." -}}
{{- end -}}
{{- end }}
