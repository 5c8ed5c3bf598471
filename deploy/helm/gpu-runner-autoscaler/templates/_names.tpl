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

{{/* What runner pods and the pods of their jobs reach: everything except link-local addresses. */}}
{{- define "runner-egress" -}}
policyTypes: [Egress]
egress:
- to:
  - namespaceSelector: {}  # with Cilium, an ipBlock matches no pods
  - ipBlock:
      cidr: 0.0.0.0/0
      except: [169.254.0.0/16]
  - ipBlock:
      cidr: "::/0"
      except: ["fd00:ec2::254/128", "fd00:ec2::23/128", "fe80::/10"]
- to:
  - ipBlock: {cidr: 169.254.20.10/32}  # NodeLocal DNSCache
  ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
{{- end }}

{{/* What creates the controller's pods. Several replicas need a store that they share. */}}
{{- define "workload" -}}
{{- if not .Values.postgresql.enabled -}}
StatefulSet
{{- else if regexMatch "(?m)^store:\\s*[\"']?postgresql://" .Values.fleet -}}
Deployment
{{- else -}}
{{- fail "postgresql.enabled: `store` in fleet.yaml is not postgresql://USER@HOST/DATABASE" -}}
{{- end -}}
{{- end }}
