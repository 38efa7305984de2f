{{/* Labels of everything in the release. */}}
{{- define "gridcast.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: gridcast
{{- end }}

{{/* An image of ours: (list . "operator"). */}}
{{- define "gridcast.image" -}}
{{- $root := index . 0 -}}
{{ $root.Values.registry }}/{{ index . 1 }}:{{ $root.Values.tag | default $root.Chart.AppVersion }}
{{- end }}

{{- define "gridcast.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whom a pod without privileges runs as. OpenShift assigns users, and refuses those that somebody chose. */}}
{{- define "gridcast.user" -}}
runAsNonRoot: true
{{- if not .Values.openshift.enabled }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* SELinux of the agent's containers: where it is enforced, they look into other containers and write to the node. */}}
{{- define "gridcast.seLinux" -}}
{{- $options := .Values.agent.seLinuxOptions }}
{{- if and (not $options) .Values.openshift.enabled }}
{{- $options = dict "type" "spc_t" }}
{{- end }}
{{- with $options }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
