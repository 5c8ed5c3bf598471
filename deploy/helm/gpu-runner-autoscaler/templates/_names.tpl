{{/* Metadata of an object in the namespace of the release: the name with the suffix that the caller passes. */}}
{{- define "metadata" -}}
name: {{ .root.Release.Name }}{{ .suffix }}
namespace: {{ .root.Release.Namespace }}
{{- end }}

{{/* The labels by which Services, policies and budgets select the controller's pod. */}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ .Release.Name }}
{{- end }}

{{/* The ConfigMap's name contains a hash of fleet.yaml, so that a change restarts the controller. */}}
{{- define "fleet" -}}
{{- $text := required "fleet is missing: --set-file fleet=fleet.yaml" .Values.fleet -}}
{{ .Release.Name }}-{{ sha256sum $text | trunc 10 }}
{{- end }}

{{/* The controller's service account as the subject of a binding. */}}
{{- define "subjects" -}}
- {kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Release.Namespace }}}
{{- end }}
