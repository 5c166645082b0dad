{{- define "elasticjob.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}

{{/* Name of the release's objects: the release's name, with the chart's where it lacks it. */}}
{{- define "elasticjob.fullname" -}}
{{- $chart := include "elasticjob.name" . -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "elasticjob.operator" -}}
{{ include "elasticjob.fullname" . }}-operator
{{- end -}}

{{- define "elasticjob.serviceAccount" -}}
{{- $own := ternary (include "elasticjob.operator" .) "default" .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default $own }}
{{- end -}}

{{/* Selector labels; they never change, because a Deployment's selector cannot. */}}
{{- define "elasticjob.selector" -}}
app.kubernetes.io/name: {{ include "elasticjob.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The chart's own labels, and those of commonLabels that are none of these. */}}
{{- define "elasticjob.labels" -}}
{{- include "elasticjob.moreLabels" (list . dict) -}}
{{- end -}}

{{/* ... and labels of one object: (list . .Values.metrics.rules.labels) */}}
{{- define "elasticjob.moreLabels" -}}
{{- $root := index . 0 -}}
{{- $own := fromYaml (include "elasticjob.selector" $root) -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $own (index . 1) $root.Values.commonLabels) -}}
{{- end -}}

{{/* Labels of the pods of hooks, which no selector of the operator's finds. */}}
{{- define "elasticjob.hookLabels" -}}
{{- $own := dict "app.kubernetes.io/name" (printf "%s-hook" (include "elasticjob.name" .)) -}}
{{- toYaml (merge $own (dict "app.kubernetes.io/instance" .Release.Name) .Values.commonLabels) -}}
{{- end -}}

{{/* What the pods of hooks have in common with the operator's. */}}
{{- define "elasticjob.hookPod" -}}
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Image reference: (list . .Values.image.operator) */}}
{{- define "elasticjob.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Whether nodes are watched: "true" or nothing. By default they are, also where values of an earlier release lack it. */}}
{{- define "elasticjob.watchesNodes" -}}
{{- if ne (toString (.Values.nodes).watch) "false" }}true{{ end -}}
{{- end -}}

{{/* Who the operator's roles are bound to. */}}
{{- define "elasticjob.subjects" -}}
- kind: ServiceAccount
  name: {{ include "elasticjob.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* The operators' metrics: their Service, the name of their port, and the mount of their certificate. */}}
{{- define "elasticjob.metricsService" -}}
{{ include "elasticjob.operator" . }}-metrics
{{- end -}}

{{- define "elasticjob.metricsPort" -}}
{{ if (.Values.metrics.secure).enabled }}metrics{{ else }}health{{ end }}
{{- end -}}

{{- define "elasticjob.metricsMounts" -}}
{{- if and (.Values.metrics.secure).enabled .Values.metrics.secure.certificateSecret -}}
- {name: metrics-certificate, mountPath: /metrics-certificate, readOnly: true}
{{- end -}}
{{- end -}}

{{- define "elasticjob.metricsVolumes" -}}
{{- with .Values.metrics.secure -}}
{{- if and .enabled .certificateSecret -}}
- {name: metrics-certificate, secret: {secretName: {{ .certificateSecret }}}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What an uninstall leaves, for NOTES.txt and kept.yaml. */}}
{{- define "elasticjob.kept" -}}
`helm uninstall` removes the operator and leaves the CRDs and all ElasticJobs. Running jobs train on, but without an
operator nobody replaces a lost worker, scales a job or ends it. Installing the chart again takes them up again.
To remove them as well, with their pods:

    kubectl delete elasticjobs --all --all-namespaces
    kubectl delete crd elasticjobs.elasticjob.io elasticworkers.elasticjob.io
    kubectl delete configmap --namespace {{ .Release.Namespace }} {{ include "elasticjob.fullname" . }}-crds-and-jobs-are-kept
{{- end -}}

{{/* The namespaces in which a policy holds: those that the operator serves. */}}
{{- define "elasticjob.policyScope" -}}
{{- with .Values.namespaces -}}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end }}

{{/* A policy's variable: who may write an ElasticJob's status, as the operator and an administrator may. */}}
{{- define "elasticjob.writesStatus" -}}
- name: writesStatus
  expression: >-
    authorizer.group('elasticjob.io').resource('elasticjobs').subresource('status').namespace(request.namespace)
    .check('update').allowed()
{{- end }}

{{/* What puts a policy in force: (list . "pods") */}}
{{- define "elasticjob.policyBinding" -}}
{{- $policy := printf "%s-%s" (include "elasticjob.fullname" (first .)) (last .) -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $policy }}
  labels:
    {{- include "elasticjob.labels" (first .) | nindent 4 }}
spec:
  policyName: {{ $policy }}
  validationActions: [Deny]
{{- end }}
