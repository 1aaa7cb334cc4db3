{{/* A volume for each pod of a StatefulSet, by `storage`; nothing without a size. */}}
{{- define "peerloom.claims" -}}
{{- if .size -}}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: state
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .className }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .size }}
{{- end }}
{{- end }}
