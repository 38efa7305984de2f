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
