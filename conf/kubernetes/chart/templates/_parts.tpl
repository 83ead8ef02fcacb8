{{- define "sparklog.labels" -}}
app.kubernetes.io/name: sparklog
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "sparklog.podSecurity" -}}
runAsNonRoot: true
runAsUser: 185
runAsGroup: 185
fsGroup: 185
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "sparklog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}

{{- define "sparklog.variables" -}}
env:
  - name: SPARKLOG_BOOTSTRAP_SERVER
    value: {{ .Values.root | quote }}
{{- range $name, $value := .Values.environment }}
  - name: {{ $name }}
    value: {{ $value | quote }}
{{- end }}
{{- with .Values.storageSecret }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end }}

{{- define "sparklog.pod" -}}
serviceAccountName: {{ .Values.serviceAccounts.tools.name }}
automountServiceAccountToken: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "sparklog.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "sparklog.container" -}}
image: {{ .Values.image.name | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "sparklog.containerSecurity" . | nindent 2 }}
{{ include "sparklog.variables" . }}
{{- end }}
