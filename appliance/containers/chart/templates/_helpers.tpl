{{- define "gnomon.name" -}}
{{- printf "%s" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "gnomon.selector" -}}
app.kubernetes.io/name: gnomon
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gnomon.labels" -}}
{{ include "gnomon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Megabytes of the pod: items and their index, connections, packets and the program. */}}
{{- define "gnomon.megabytes" -}}
{{- add (div (mul (int .Values.memory) 8) 7) (int .Values.connectionMemory) 160 -}}
{{- end -}}
